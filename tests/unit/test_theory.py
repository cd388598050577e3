"""Small cases worked by hand, limits in which the two theories meet, and what the user sees."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import psofed
from psofed import Data, Scenario, Selection
from psofed.availabilities import Bernoulli
from psofed.cli import app
from psofed.explore.answers import PageState, sentence
from psofed.explore.exports import as_command
from psofed.explore.steps import theory_steps
from psofed.theory.stability import mean_square_stepsize_bound
from psofed.theory.tuning import tune
from reference.attacks import make_attack

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from dense_matrices import dense_data_matrices, dense_selection_matrices
from paper_operators import PaperOperators, closed_form_stepsize

pytestmark = [pytest.mark.theory, pytest.mark.takes(21)]


RUNNER = CliRunner()
KEYS = ["network_mse", "server_msd", "test_mse", "honest_mse", "terms", "spectral_radius", "max_stepsize"]
KEYS += ["mean_max_stepsize", "optimal_stepsize", "theory", "theory_title", "scenario"]


def attacked(**changes) -> Scenario:
    values = {"num_clients": 20, "dimension": 3, "attack": make_attack(num_byzantine=5)} | changes
    return Scenario(**values)


def alone(dimension: int, shared: int) -> Scenario:
    return Scenario(
        num_clients=1,
        dimension=dimension,
        num_participants=1,
        num_shared=shared,
        stepsize=0.1,
        data=Data(input_variance=0.8, noise_variance=0.02),
    )


@pytest.mark.parametrize(("dimension", "shared"), [(1, 1), (3, 3), (4, 2)])
def test_a_single_honest_client_is_plain_lms(dimension: int, shared: int) -> None:
    # Excess of LMS on white inputs: μ D ς² σ² / (2 − μ (D + 2) ς²); what is shared changes nothing for one client.
    mu, r, sigma = 0.1, 0.8, 0.02
    excess = mu * dimension * r * sigma / (2 - mu * (dimension + 2) * r)
    prediction = psofed.predict(alone(dimension, shared))
    assert prediction.terms.data == pytest.approx(excess, rel=1e-8)
    assert prediction.max_stepsize == pytest.approx(2 / ((dimension + 2) * r), rel=1e-5)
    expected = 1 - 2 * mu * r + (dimension + 2) * mu**2 * r**2
    if shared == dimension:
        assert prediction.spectral_radius == pytest.approx(expected, rel=1e-6)


def test_white_inputs_give_the_bound_of_the_notes() -> None:
    fleet = psofed.draw_fleet(Scenario(num_clients=5, dimension=5, data=Data(input_variance=1.2)))
    assert mean_square_stepsize_bound(fleet) == pytest.approx(2 / (7 * 1.2))


def test_the_bound_equals_that_of_the_dense_matrices() -> None:
    data = Data(covariances=[[[0.9, 0.3], [0.3, 0.5]], [[0.1, -0.02], [-0.02, 0.05]]])
    scenario = Scenario(num_clients=2, dimension=2, num_participants=1, data=data)
    kappa, fourth = dense_data_matrices(scenario)
    rate = np.linalg.eigvals(np.linalg.pinv(kappa) @ fourth).real.max()
    size = len(kappa)
    d = np.block([[kappa / 2, -fourth / 2], [np.eye(size), np.zeros((size, size))]])
    values = np.linalg.eigvals(d)
    real = values.real[np.abs(values.imag) < 1e-9].max()
    assert mean_square_stepsize_bound(psofed.draw_fleet(scenario)) == pytest.approx(1 / max(rate, real), rel=1e-6)


@pytest.mark.parametrize(
    "scenario",
    [
        attacked(num_shared=3, uplink="redrawn", selection=Selection(coordinated=True)),
        attacked(num_shared=3, uplink="redrawn", selection=Selection(coordinated=False)),
        alone(3, 3).replace(attack=make_attack(num_byzantine=1)),
    ],
    ids=["one mask", "a mask each", "one client"],
)
def test_full_sharing_with_a_redrawn_uplink_is_what_the_paper_analyses(scenario: Scenario) -> None:
    exact, paper = psofed.predict(scenario), psofed.predict(scenario, theory="paper")
    assert exact.network_mse == pytest.approx(paper.network_mse, rel=1e-8)
    assert exact.server_msd == pytest.approx(paper.server_msd, rel=1e-8)


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_without_an_attack_both_theories_meet_as_the_stepsize_shrinks(shared: int) -> None:
    gaps = []
    for mu in (0.04, 0.01):
        scenario = attacked(attack=None, num_shared=shared, stepsize=mu)
        exact, paper = psofed.predict(scenario), psofed.predict(scenario, theory="paper")
        gaps.append(abs(exact.network_mse / paper.network_mse - 1))
    assert gaps[1] < 0.5 * gaps[0] + 1e-9
    assert gaps[1] < 1e-3


def test_all_patterns_are_one_when_all_is_shared() -> None:
    values = [
        psofed.predict(attacked(num_shared=3, selection=Selection(pattern=pattern, coordinated=coordinated)))
        for pattern in ("random", "round-robin")
        for coordinated in (True, False)
    ]
    assert np.ptp([value.network_mse for value in values]) < 1e-9


def test_a_small_stepsize_needs_no_fourth_moments() -> None:
    scenario = attacked(stepsize=0.002)
    plain = psofed.predict(scenario, theory="paper").network_mse
    assert psofed.predict(scenario, "paper", small_stepsize=True).network_mse == pytest.approx(plain, rel=0.01)
    scenario = scenario.replace(stepsize=0.2)
    plain = psofed.predict(scenario, theory="paper").network_mse
    assert psofed.predict(scenario, "paper", small_stepsize=True).network_mse < 0.9 * plain


def test_the_closed_form_stepsize_rises_and_falls_with_the_number_of_terms() -> None:
    scenario = Scenario(
        num_clients=50, dimension=5, attack=make_attack(num_byzantine=5, probability=0.25, variance=0.25)
    )
    few, some, many = (closed_form_stepsize(scenario, terms) for terms in (3, 50, 1000))
    assert few < some > many
    assert 0.008 < some < 0.014
    true = psofed.optimal_stepsize(scenario, theory="paper")
    assert true == pytest.approx(0.036, abs=0.002)
    independent = scenario.replace(selection=Selection(coordinated=False))
    assert psofed.optimal_stepsize(independent, theory="paper") == pytest.approx(0.028, abs=0.002)


def test_the_closed_form_is_the_minimum_of_its_own_parabola() -> None:
    # muopt1 with J = 3, from dense powers of 𝓕 cut off after μ².
    scenario = Scenario(
        num_clients=2,
        dimension=2,
        num_participants=1,
        data=Data(input_correlation=0.3),
        attack=make_attack(num_byzantine=1),
    )
    operators = PaperOperators.of(scenario)
    q_a, q_b, _ = dense_selection_matrices(scenario)
    kappa, fourth = dense_data_matrices(scenario)
    a0, a1, a2 = q_a.T @ q_b.T, q_a.T @ kappa @ q_b.T, q_a.T @ fourth @ q_b.T
    total = [np.zeros_like(a0) for _ in range(3)]
    power = [np.eye(len(a0)), np.zeros_like(a0), np.zeros_like(a0)]
    for _ in range(4):
        total = [t + p for t, p in zip(total, power, strict=True)]
        power = [power[0] @ a0, power[1] @ a0 - power[0] @ a1, power[2] @ a0 - power[1] @ a1 + power[0] @ a2]
    sigma, phi, omega = (x.ravel() for x in (operators.reader, operators.data_source, operators.attack_source))
    expected = -(omega @ total[1] @ sigma) / (2 * (phi @ total[0] @ sigma + omega @ total[2] @ sigma))
    assert closed_form_stepsize(scenario, 3) == pytest.approx(expected, rel=1e-9)


def test_the_best_stepsize_is_a_minimum_of_the_predicted_error() -> None:
    scenario = attacked()
    for metric, name in (("network", "network_mse"), ("msd", "server_msd")):
        best = psofed.theory.stepsize.optimal_stepsize(scenario, metric=metric)
        lowest = getattr(psofed.predict(scenario.replace(stepsize=best)), name)
        for factor in (0.9, 1.1):
            assert getattr(psofed.predict(scenario.replace(stepsize=best * factor)), name) > lowest


def test_unstable_predictions_are_infinite_and_null_in_json() -> None:
    prediction = psofed.predict(attacked(stepsize=0.9))
    assert prediction.spectral_radius > 1
    assert math.isinf(prediction.network_mse)
    assert prediction.to_json()["network_mse"] is None
    assert prediction.to_json()["terms"]["attack"] is None
    assert not np.isfinite(prediction.learning_curve(3000).network_mse[-1])


@pytest.mark.parametrize("kind", ["little-is-enough", "mimic"])
def test_attacks_that_are_not_affine_are_refused_by_name(kind: str) -> None:
    with pytest.raises(psofed.NotCoveredError, match=kind):
        psofed.predict(attacked(attack=make_attack(num_byzantine=3, kind=kind)))


def test_what_is_not_covered_is_refused_by_name() -> None:
    biased = attacked(attack=make_attack(num_byzantine=3, kind="constant-bias"))
    with pytest.raises(psofed.NotCoveredError, match=r"paper's theory.*constant-bias"):
        psofed.predict(biased, theory="paper")
    walking, turned = psofed.drifts.RandomWalk(variance=0.01), psofed.attacks.SignFlip(num_byzantine=3)
    with pytest.raises(psofed.NotCoveredError, match=r"sign-flip.*drifts"):
        psofed.predict(attacked(attack=turned.replace(of="model"), drift=walking))
    with pytest.raises(psofed.NotCoveredError, match="median"):
        psofed.predict(attacked(aggregation="median"))
    with pytest.raises(psofed.InvalidValueError, match="theory"):
        psofed.predict(attacked(), theory="guess")
    with pytest.raises(psofed.InvalidValueError, match="small_stepsize"):
        psofed.predict(attacked(), small_stepsize=True)


def test_tuning_recommends_fewer_numbers_where_little_is_lost() -> None:
    tuning = tune(attacked(attack=make_attack(num_byzantine=5, variance=0.5)))
    assert tuning.recommended.num_shared == 1
    assert all(point.convergence_iterations > 0 for point in tuning.points)
    assert [point.numbers_per_iteration for point in tuning.points] == [10, 20, 30]


def test_tuning_without_an_attack_minimises_the_mean_error_over_the_run() -> None:
    scenario = attacked(attack=None, iterations=300)
    tuning = tune(scenario, shared=[1, 3])
    assert tuning.horizon == 300
    assert "mean network MSE over 300 iterations" in tuning.reason
    for point in tuning.points:
        own = scenario.replace(num_shared=point.num_shared)
        means = [
            psofed.predict(own.replace(stepsize=factor * point.stepsize)).learning_curve(300).network_mse.mean()
            for factor in (0.8, 1.0, 1.25)
        ]
        assert means[1] == min(means) == pytest.approx(point.horizon_error)
    assert tune(scenario, shared=[1], horizon=30).recommended.stepsize > 1.2 * tuning.points[0].stepsize


def test_a_horizon_can_be_asked_for_under_attack_too() -> None:
    scenario = attacked()
    steady, short = tune(scenario, shared=[1]), tune(scenario, shared=[1], horizon=40)
    assert steady.horizon is None
    assert short.recommended.stepsize > steady.recommended.stepsize
    with pytest.raises(psofed.InvalidValueError, match="horizon"):
        tune(scenario, horizon=0)


def curve_of(scenario: Scenario, length: int = 1200) -> tuple[np.ndarray, float]:
    prediction = psofed.predict(scenario)
    return prediction.learning_curve(length).network_mse, prediction.network_mse


@pytest.mark.parametrize(
    "scenario",
    [
        attacked(num_clients=40, stepsize=0.05),
        # Huge attack, hardly any noise: the curve starts far below its steady state.
        attacked(attack=make_attack(num_byzantine=20, probability=1.0, variance=50.0), stepsize=0.1),
    ],
    ids=["from above", "from below"],
)
def test_settling_is_counted_on_both_sides_of_the_steady_state(scenario: Scenario) -> None:
    from psofed.theory.model import TheoryModel
    from psofed.theory.solve import Solver
    from psofed.theory.tuning import settling_time

    curve, steady = curve_of(scenario)
    inside = np.abs(10 * np.log10(curve / steady)) <= 1
    truth = int(np.nonzero(~inside)[0][-1] + 1)
    assert truth > 0
    assert settling_time(Solver(TheoryModel(scenario)), scenario.stepsize, steady) == truth


def test_settling_knows_no_threshold_in_the_number_of_clients() -> None:
    points = [
        tune(Scenario(num_clients=clients, dimension=2, attack=make_attack(num_byzantine=15)), shared=[1]).points[0]
        for clients in (300, 301)
    ]
    assert abs(points[0].convergence_iterations - points[1].convergence_iterations) <= 2


def test_tuning_works_on_measured_covariances() -> None:
    data = Data(covariances=[[[0.9, 0.3], [0.3, 0.5]], [[0.4, -0.1], [-0.1, 0.7]], [[1.0, 0.0], [0.0, 0.2]]])
    scenario = Scenario(num_clients=3, dimension=2, num_participants=2, data=data, attack=make_attack(num_byzantine=1))
    tuning = tune(scenario, metric="test")
    assert 0 < tuning.recommended.stepsize < tuning.recommended.max_stepsize


@pytest.fixture
def scenario_file(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(attacked(iterations=400).to_toml(), encoding="utf-8")
    return path


def test_predict_prints_the_promised_json(scenario_file) -> None:
    done = RUNNER.invoke(app, ["predict", str(scenario_file), "--json", "--curve"])
    assert done.exit_code == 0
    value = json.loads(done.stdout)
    assert [key for key in value if key != "curve"] == KEYS
    assert set(value["terms"]) == {"data", "attack", "noise"}
    assert len(value["curve"]["network_mse"]) == 400
    assert value["theory"] == "exact"


def test_predict_speaks_to_people_too(scenario_file) -> None:
    done = RUNNER.invoke(app, ["predict", str(scenario_file), "--theory", "paper", "--curve"])
    assert done.exit_code == 0
    assert "dB" in done.stdout
    unstable = RUNNER.invoke(app, ["predict", str(scenario_file), "--set", "stepsize=0.9"])
    assert "unstable" in unstable.stdout
    honest = RUNNER.invoke(app, ["predict", str(scenario_file), "--set", "attack.num_byzantine=0"])
    assert "lower is better" in honest.stdout


def test_tune_draws_and_prints(scenario_file, tmp_path) -> None:
    picture = tmp_path / "tune.svg"
    done = RUNNER.invoke(app, ["tune", str(scenario_file), "--shared", "1..2", "--json", "--plot", str(picture)])
    assert done.exit_code == 0
    value = json.loads(done.stdout)
    assert [point["num_shared"] for point in value["points"]] == [1, 2]
    assert value["recommendation"]["reason"]
    assert picture.stat().st_size > 1000
    done = RUNNER.invoke(app, ["tune", str(scenario_file), "--shared", "1,3"])
    assert done.stdout.startswith("Share 1 parameter with stepsize")


def test_tune_refuses_numbers_of_entries_that_do_not_exist(scenario_file) -> None:
    done = RUNNER.invoke(app, ["tune", str(scenario_file), "--shared", "1..9"])
    assert isinstance(done.exception, psofed.InvalidValueError)


def test_compare_passes_the_exact_theory_and_fails_the_papers(scenario_file, tmp_path) -> None:
    picture = tmp_path / "compare.png"
    common = ["compare", str(scenario_file), "--trials", "100", "--set", "num_shared=3"]
    done = RUNNER.invoke(app, [*common, "--json", "--plot", str(picture)])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["agrees"] is True
    assert picture.stat().st_size > 1000
    wrong = RUNNER.invoke(app, [*common, "--theory", "paper"])
    assert wrong.exit_code == 1
    assert "Theory and simulation differ" in wrong.stdout


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_small_stepsizes_of_one_client_that_shares_all_follow_the_textbook(correlation: float) -> None:
    """Plain LMS without the fourth moments: E‖w̃‖² = μσ²D/2, whatever the inputs' covariance."""
    data = Data(input_variance=0.8, noise_variance=0.02, input_correlation=correlation)
    scenario = Scenario(num_clients=1, dimension=3, num_participants=1, num_shared=3, stepsize=0.05, data=data)
    assert psofed.predict(scenario, "paper", small_stepsize=True).server_msd == pytest.approx(
        0.05 * 0.02 * 3 / 2, rel=1e-6
    )


def test_theory_refuses_fleets_that_learn_nothing() -> None:
    still = psofed.Scenario(num_clients=3, dimension=2, data=psofed.Data(input_variance=0.0))
    with pytest.raises(psofed.NotCoveredError, match=r"data\.input_variance is at most 0"):
        psofed.predict(still)
    slow = psofed.Scenario(num_clients=1, dimension=2, stepsize=1e-17)
    with pytest.raises(psofed.NotCoveredError, match=r"stepsize = 1e-17 is so small .* at least 8\.7e-14"):
        _ = psofed.predict(slow).network_mse


def test_a_stepsize_far_beyond_the_limit_is_unstable_and_numpy_says_nothing() -> None:
    assert psofed.predict(psofed.Scenario(num_clients=3, dimension=2, stepsize=1e300)).network_mse == math.inf


class _Neighbours(psofed.Pattern):
    """A run of M neighbouring entries that begins anywhere; only its moments are used."""

    kind = "neighbours-of-test-theory"
    spread: bool = psofed.option(default=False, text="whether to state those of random masks instead")
    rows: int = psofed.option(default=4, low=1, text="how many rows the matrix has")

    def mask_moments(self, dimension: int, num_shared: int):
        second = np.zeros((dimension, dimension))
        for first in range(dimension):
            mask = np.isin(np.arange(dimension), (first + np.arange(num_shared)) % dimension)
            second += np.outer(mask, mask) / dimension
        if self.spread:
            second[:] = num_shared * (num_shared - 1) / (dimension * (dimension - 1))
        return num_shared / dimension, second[: self.rows]


@pytest.mark.parametrize("coordinated", [True, False])
def test_masks_may_state_their_second_moments_as_a_matrix(coordinated: bool) -> None:
    def predicted(pattern, correlation: float):
        scenario = Scenario(
            num_clients=4, dimension=4, num_participants=2, num_shared=2, data=Data(input_correlation=correlation),
            selection=Selection(pattern=pattern, coordinated=coordinated),
        )  # fmt: skip
        return psofed.predict(scenario).server_msd

    # White inputs only know how often an entry is shared; correlated ones know its neighbours.
    assert predicted(_Neighbours(), 0.0) == predicted("random", 0.0)
    assert predicted(_Neighbours(spread=True), 0.8) == pytest.approx(predicted("random", 0.8), rel=1e-9)
    assert predicted(_Neighbours(), 0.8) != pytest.approx(predicted("random", 0.8), rel=0.02)
    with pytest.raises(psofed.PsofedError, match=r"of shape \(3, 4\), where a number or a matrix \(D, D\)"):
        predicted(_Neighbours(rows=3), 0.8)


@pytest.mark.parametrize("kind", ["drop-out", "non-finite"])
def test_a_server_that_hears_nothing_is_not_called_unstable(kind: str) -> None:
    attack = make_attack(kind=kind, num_byzantine=3, probability=1.0)
    silent = Scenario(num_clients=3, dimension=2, attack=attack)
    with pytest.raises(psofed.NotCoveredError, match="learns nothing"):
        psofed.predict(silent)
    now_and_then = silent.replace(attack=attack.replace(probability=0.9))
    assert psofed.predict(now_and_then).is_stable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"availability": Bernoulli(probability=0.0)}, "no client is ever available"),
        ({"availability": Bernoulli(probability=(0.5, 0.0, 1.0), learns="available")}, "client 1 is never"),
        ({"channel": psofed.Links(up=psofed.channels.Lossy(probability=1.0))}, "loses every upload"),
    ],
)
def test_a_network_in_which_nothing_is_learned_is_not_called_unstable(change: dict, message: str) -> None:
    with pytest.raises(psofed.NotCoveredError, match=message + ".*learns nothing"):
        psofed.predict(Scenario(num_clients=3, dimension=2, **change))


def test_nlms_on_inputs_that_are_always_zero_is_the_limit_of_small_ones() -> None:
    def predicted(variance: float, regularisation: float) -> float:
        data = Data(input_variance=(variance, 1.0, 1.0), noise_variance=0.01)
        learner = psofed.learners.NLMS(regularisation=regularisation)
        return psofed.predict(Scenario(num_clients=3, dimension=3, data=data, learner=learner)).network_mse

    assert predicted(0.0, 0.1) == pytest.approx(predicted(1e-9, 0.1), rel=1e-6)
    assert predicted(0.0, 0.0) == pytest.approx(predicted(0.0, 1e-6), rel=1e-3)


def test_a_delay_line_is_predicted_under_the_independence_assumption_if_asked(tmp_path: Path) -> None:
    line = Data(stream=psofed.streams.DelayLine(pole=0.5))
    scenario = Scenario(num_clients=4, dimension=2, iterations=50, data=line)
    with pytest.raises(psofed.NotCoveredError, match=r'delay-line.*theory = "independence"'):
        psofed.predict(scenario)
    exact = psofed.predict(scenario.replace(data=Data(input_correlation=0.5)))
    assert psofed.predict(scenario, theory="independence").network_mse == exact.network_mse
    assert "independence assumption" in psofed.compare(scenario, theory="independence", trials=2).report().to_text()
    file = tmp_path / "line.toml"
    file.write_text(scenario.to_toml(), encoding="utf-8")
    printed = RUNNER.invoke(app, ["predict", str(file), "--theory", "independence", "--json"]).stdout
    assert json.loads(printed)["theory_title"] == "theory under the independence assumption"
    state = PageState({}, scenario, theory=next(theory_steps(scenario)))
    assert sentence(state, "network_mse").startswith("Under the independence assumption, sharing 1 of 2")
    assert "--theory independence" in as_command(scenario, (), is_predictable=True)


def test_a_prediction_draws_its_fleet_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from psofed.theory import model

    scenario = Scenario(num_clients=20, dimension=3, attack=psofed.attacks.Gaussian(num_byzantine=4))
    drawn: list[Scenario] = []
    monkeypatch.setattr(model, "draw_fleet", lambda s: drawn.append(s) or psofed.draw_fleet(s))
    assert psofed.predict(scenario).terms.attack > 0
    assert drawn == [scenario]


def test_a_budget_chooses_the_participants_too_and_is_never_exceeded() -> None:
    scenario = attacked(attack=make_attack(num_byzantine=5, variance=0.5))
    tuning = tune(scenario, budget=24)
    assert all(point.numbers_per_iteration <= 24 for point in tuning.points)
    assert [point.num_participants for point in tuning.points] == [12, 6, 4]
    assert tuning.recommended.network_mse == min(point.network_mse for point in tuning.points)
    best = tuning.design(tuning.recommended).replace(stepsize=tuning.recommended.stepsize)
    assert psofed.predict(best).network_mse == pytest.approx(tuning.recommended.network_mse, rel=1e-9)
    assert tuning.to_json()["budget"] == 24
    assert "12 participants" in tuning.report().to_text()


def test_participants_are_halved_while_that_lowers_the_error() -> None:
    attack = make_attack(kind="sign-flip", num_byzantine=8, probability=1.0, of="update", byzantine_set="redrawn")
    scenario = attacked(attack=attack, iterations=100)
    (point,) = tune(scenario, shared=[3], budget=120, horizon=100).points
    errors = {
        count: tune(scenario.replace(num_participants=count), shared=[3], horizon=100).points[0].horizon_error
        for count in (20, 10, 5)
    }
    assert point.horizon_error == pytest.approx(min(errors.values()), rel=1e-6)


def test_a_budget_that_buys_nothing_is_refused_with_the_least_that_does() -> None:
    with pytest.raises(psofed.InvalidValueError, match="budget must be at least 2"):
        tune(attacked(), budget=1)
    assert [point.num_shared for point in tune(attacked(), budget=4).points] == [1, 2]
