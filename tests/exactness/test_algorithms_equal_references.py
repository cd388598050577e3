"""Every algorithm's engine and plain bodies against independent forms, on the same draws, with every option.

The forms here are written from the equations alone, vectorised, on all participants at once, and for an attack that
adds something; they share nothing with the parts' ``encode``, ``decode`` and ``apply``.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from psofed import Algorithm, Attack, Data, NotCoveredError, Scenario, simulate
from psofed.engine.streams import make_stream
from psofed.fleet import draw_fleet
from psofed.parts.algorithms import CSFed, DeMoA, OnlineFed, QSFed, RoSDHB, SignSGD
from psofed.parts.attacks import ConstantBias, Gaussian, NonFinite
from psofed.parts.registry import find_part, part_names
from reference.draws import draw_trial
from reference.literal import run_trial
from reference.server_model import _ordered_participants, _own_draws
from reference.shocks import draw_shocks

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.takes(10)]

METRICS = ("network_mse", "server_msd", "test_mse")
COVARIANCES = [np.diag([1.0, 0.5, 2.0, 0.1 + 0.1 * k]) + 0.2 for k in range(7)]

# Options that differ from the defaults, so that each is seen to do what the equations say.
OPTIONS = [
    OnlineFed(budget="fewer-participants"),
    SignSGD(bound=0.5),
    SignSGD(vote="mean"),
    SignSGD(signs="deterministic"),
    CSFed(measurements=7, decoding_steps=3),
    CSFed(magnitude=False),
    QSFed(rows=4, columns=2, top=2),
    RoSDHB(momentum=0.0),
    DeMoA(alpha=1.0),
    DeMoA(unseen="kept"),
]


# --- one exchange, from u_k (participants, D) and what the attack adds (participants, numbers): w_{n+1} − w_n -------


def online_fed_step(scenario: Scenario, updates: np.ndarray, added: np.ndarray, **_: object) -> np.ndarray:
    return (updates + added).mean(axis=0)


def signsgd_step(
    scenario: Scenario, updates: np.ndarray, added: np.ndarray, each: np.ndarray, **_: object
) -> np.ndarray:
    options, gradients = scenario.algorithm, updates / scenario.stepsize
    if options.signs == "stochastic":
        probability = np.clip((options.bound + gradients) / (2 * options.bound), 0, 1)
        signs = np.where(each < probability, 1.0, -1.0)
    else:
        signs = np.where(gradients >= 0, 1.0, -1.0)
    total = (signs + added).sum(axis=0)
    votes = {"majority": np.sign(total), "mean": total / len(updates)}
    return scenario.stepsize * votes[options.vote]


def cs_fed_step(
    scenario: Scenario, updates: np.ndarray, added: np.ndarray, normals: np.ndarray, **_: object
) -> np.ndarray:
    options, q = scenario.algorithm, scenario.algorithm.measurements
    phi = normals.reshape(scenario.dimension, q).T  # the shared normals are Φᵀ, row by row
    received = np.where(updates @ phi.T >= 0, 1.0, -1.0)
    if options.magnitude:
        received = np.column_stack([received, np.linalg.norm(updates, axis=1)])
    received = received + added
    changes = []
    for row in received:
        guess = np.zeros(scenario.dimension)
        for _step in range(options.decoding_steps):
            guess = guess + phi.T @ (row[:q] - np.sign(phi @ guess)) / q
        length, magnitude = np.linalg.norm(guess), row[q] if options.magnitude else scenario.stepsize
        changes.append(magnitude * guess / length if length else guess)
    return np.mean(changes, axis=0)


def qs_fed_step(
    scenario: Scenario, updates: np.ndarray, added: np.ndarray, uniforms: np.ndarray, **_: object
) -> np.ndarray:
    options, dimension = scenario.algorithm, scenario.dimension
    draws = uniforms.reshape(options.rows, dimension, 2)
    columns, signs = (draws[..., 0] * options.columns).astype(int), np.where(draws[..., 1] < 0.5, 1.0, -1.0)

    def sketch(vector: np.ndarray) -> np.ndarray:
        table = np.zeros((options.rows, options.columns))
        for r in range(options.rows):
            np.add.at(table[r], columns[r], signs[r] * vector)
        return table

    attacks = added.reshape(len(updates), options.rows, options.columns)
    table = np.mean([sketch(u) for u in updates] + attacks, axis=0)
    readings = signs * np.take_along_axis(table, columns, axis=1)
    change = np.median(readings, axis=0)
    left_out = np.argsort(-np.abs(change), kind="stable")[options.top :]
    change[left_out] = 0.0
    return change


def rosdhb_step(
    scenario: Scenario, updates: np.ndarray, added: np.ndarray, uniforms: np.ndarray, memory: dict, **_: object
) -> np.ndarray:
    beta, count = scenario.algorithm.momentum, scenario.num_shared
    mask = np.argsort(uniforms)[:count]
    assert len(updates) == scenario.num_clients
    read = np.zeros_like(updates)
    read[:, mask] = (updates[:, mask] + added) * scenario.dimension / count
    memory["m"] = beta * memory.get("m", 0.0) + (1 - beta) * read
    return memory["m"].mean(axis=0)


def demoa_step(
    scenario: Scenario, updates: np.ndarray, added: np.ndarray, clients: np.ndarray, memory: dict, **_: object
) -> np.ndarray:
    alpha, p = scenario.algorithm.alpha, scenario.num_participants / scenario.num_clients
    zeros = np.zeros((scenario.num_clients, scenario.dimension))
    own, cached = memory.get("own", zeros).copy(), memory.get("cached", zeros).copy()
    if scenario.algorithm.unseen == "shrunk":
        own, cached = (1 - alpha * p) * own, (1 - alpha * p) * cached
        own[clients] += alpha * updates
    else:
        own[clients] = (1 - alpha) * own[clients] + alpha * updates
    cached[clients] = own[clients] + added
    memory.update(own=own, cached=cached)
    return cached.mean(axis=0)


STEPS: dict[str, Callable[..., np.ndarray]] = {
    "online-fed": online_fed_step,
    "signsgd": signsgd_step,
    "cs-fed": cs_fed_step,
    "qs-fed": qs_fed_step,
    "rosdhb": rosdhb_step,
    "demoa": demoa_step,
}


def run_independently(scenario: Scenario, seed: int, trial: int) -> dict[str, np.ndarray]:
    """All metrics of one trial by the steps above, on the draws that the engine makes."""
    algorithm, fleet = scenario.algorithm, draw_fleet(scenario)
    draws, exchange = draw_trial(scenario, seed, trial), algorithm.exchange(scenario)
    step, traffic = STEPS[algorithm.kind], algorithm.traffic(scenario)
    own = make_stream(seed, "algorithm", [trial])
    participants = _ordered_participants(scenario, algorithm.most_participants(scenario), seed, trial)
    shocks = draw_shocks(
        scenario.attack, make_stream(seed, "attack", [trial]), fleet.byzantine_mask(scenario.attack),
        scenario.iterations, exchange.numbers,
    )  # fmt: skip
    model, memory = np.zeros(scenario.dimension), {}
    found = {metric: np.empty(scenario.iterations) for metric in METRICS}
    for n in range(scenario.iterations):
        errors = draws.inputs[n] @ (fleet.target - model) + draws.noise[n]
        test_errors = draws.test_inputs @ (fleet.target - model) + draws.test_noise
        found["network_mse"][n] = np.mean(errors**2)
        found["server_msd"][n] = np.sum((fleet.target - model) ** 2)
        found["test_mse"][n] = np.mean(test_errors**2)
        clients = np.sort(participants[n, : traffic.exchanges_in(n)])
        if clients.size:
            updates = scenario.stepsize * errors[clients, None] * draws.inputs[n, clients]
            added = np.zeros((clients.size, exchange.numbers))
            if isinstance(scenario.attack, Gaussian):
                added = scenario.attack.variance**0.5 * shocks.normals[n, clients]
            elif isinstance(scenario.attack, ConstantBias):
                added += scenario.attack.bias
            added = shocks.attacking[n, clients, None] * added
            random = _own_draws(scenario, exchange, own, n, clients)
            model = model + step(scenario, updates, added, clients=clients, memory=memory, **random)
    return found


# ---------------------------------------------------------------------------------------------------------------------

INDEPENDENT = [name for name in part_names("algorithm") if not find_part("algorithm", name).holds_models]


def test_every_algorithm_without_client_models_has_an_independent_form() -> None:
    assert set(STEPS) == set(INDEPENDENT)


def assert_equal(found: dict, expected: dict, tolerance: float = 1e-10) -> None:
    for metric in METRICS:
        assert np.allclose(found[metric], expected[metric], rtol=tolerance, atol=0), metric


def assert_engine_and_bodies_are_right(scenario: Scenario) -> None:
    result = simulate(scenario, trials=5, seed=5, keep_trials=True)
    for trial in (0, 4):
        expected = run_independently(scenario, 5, trial)
        assert_equal({metric: curves[trial] for metric, curves in result.trial_curves.items()}, expected)
        assert_equal(vars(run_trial(scenario, 5, trial)), expected)
    assert np.ptp(result.trial_curves["server_msd"][0]) > 0


@pytest.mark.thinned(2)
@pytest.mark.parametrize("data", [Data(), Data(input_correlation=0.6), Data(covariances=COVARIANCES)])
@pytest.mark.parametrize("shared", [1, 3, 4])
@pytest.mark.parametrize("algorithm", INDEPENDENT)
def test_every_algorithm_equals_its_independent_form(
    small_scenario: Scenario, algorithm: str, shared: int, data: Data
) -> None:
    assert_engine_and_bodies_are_right(small_scenario.replace(algorithm=algorithm, num_shared=shared, data=data))


@pytest.mark.parametrize("attack", [None, ConstantBias(num_byzantine=3, probability=0.5)])
@pytest.mark.parametrize("algorithm", INDEPENDENT)
def test_every_algorithm_equals_its_independent_form_under_other_attacks(
    small_scenario: Scenario, algorithm: str, attack: Attack | None
) -> None:
    assert_engine_and_bodies_are_right(small_scenario.replace(algorithm=algorithm, attack=attack))


@pytest.mark.parametrize("algorithm", OPTIONS, ids=repr)
def test_every_option_equals_the_independent_form(small_scenario: Scenario, algorithm: Algorithm) -> None:
    scenario = small_scenario.replace(algorithm=algorithm, num_shared=3, iterations=40)
    assert_engine_and_bodies_are_right(scenario)
    default, other = (simulate(s, trials=1, seed=5) for s in (scenario.replace(algorithm=algorithm.kind), scenario))
    assert default.steady_state["server_msd"] != other.steady_state["server_msd"]


@pytest.mark.parametrize("rule", ["krum", "trimmed-mean", "centred-clipping"])
@pytest.mark.parametrize("pre", [None, "nnm"])
@pytest.mark.parametrize("algorithm", ["rosdhb", "demoa"])
def test_rules_join_the_momenta_of_all_clients(
    small_scenario: Scenario, algorithm: str, pre: str | None, rule: str
) -> None:
    scenario = small_scenario.replace(algorithm=algorithm, pre_aggregation=pre, aggregation=rule)
    assert scenario.algorithm.num_joined(scenario) == 7
    result, literal = simulate(scenario, trials=2, seed=5, keep_trials=True), run_trial(scenario, 5, 1)
    assert_equal({metric: curves[1] for metric, curves in result.trial_curves.items()}, vars(literal))


@pytest.mark.parametrize("algorithm", ["rosdhb", "demoa"])
def test_what_does_not_arrive_changes_a_memory_as_absence_does(small_scenario: Scenario, algorithm: str) -> None:
    scenario = small_scenario.replace(algorithm=algorithm, attack=NonFinite(num_byzantine=3, probability=0.5))
    result, literal = simulate(scenario, trials=2, seed=5, keep_trials=True), run_trial(scenario, 5, 1)
    assert_equal({metric: curves[1] for metric, curves in result.trial_curves.items()}, vars(literal))
    assert np.isfinite(literal.models).all()


def test_a_momentum_of_each_client_is_refused_where_it_fills_the_memory() -> None:
    scenario = Scenario(num_clients=30_000, dimension=1_000, algorithm="demoa", iterations=1)
    with pytest.raises(NotCoveredError, match="needs 30,000,000 values"):
        simulate(scenario, trials=1)


def test_sharing_everything_makes_pso_fed_and_online_fed_the_same_server(small_scenario: Scenario) -> None:
    full = small_scenario.replace(num_shared=small_scenario.dimension)
    for attack in (None, small_scenario.attack, Gaussian(num_byzantine=7, probability=1.0)):
        partly, online = (
            simulate(full.replace(algorithm=name, attack=attack), trials=4, keep_trials=True)
            for name in ("pso-fed", "online-fed")
        )
        for metric in ("server_msd", "test_mse"):
            curves = [result.trial_curves[metric] for result in (partly, online)]
            assert np.allclose(*curves, rtol=1e-11, atol=0)


@pytest.mark.parametrize("algorithm", INDEPENDENT)
def test_a_wrong_sign_of_the_attack_would_be_noticed(small_scenario: Scenario, algorithm: str) -> None:
    """The comparison is sharp: the attack alone moves every algorithm by far more than rounding."""
    run = partial(run_independently, seed=5, trial=0)
    scenario = small_scenario.replace(algorithm=algorithm)
    attacked, clean = run(scenario)["server_msd"], run(scenario.replace(attack=None))["server_msd"]
    assert not np.allclose(attacked, clean, rtol=0.01, atol=0)
