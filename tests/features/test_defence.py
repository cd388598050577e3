"""Defences by hand: charts, thresholds, who is out and when, and every place a defence is named in."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import psofed
from psofed import InvalidValueError, NotCoveredError, Scenario, load_result, predict, simulate
from psofed.cli import app
from psofed.parts.attacks import Gaussian
from psofed.parts.contexts import Evidence
from psofed.parts.defences import Cusum
from psofed.parts.watching import MEDIAN_SQUARE, Watch, Watching, WatchPlan, all_peaks
from psofed.scenario.changes import with_values
from psofed.simulation.watch_plan import find_threshold, make_plan
from psofed.theory import residuals

pytestmark = [pytest.mark.parts, pytest.mark.simulation, pytest.mark.theory, pytest.mark.takes(17)]

SMALL = Scenario(
    num_clients=6, dimension=3, num_participants=4, iterations=40, attack=Gaussian(num_byzantine=2, probability=0.6),
    defence=Cusum(threshold=8.0, return_after=3),
)  # fmt: skip


def test_the_sums_of_cusum_are_log_likelihood_ratios() -> None:
    chart, memory = Cusum(ratio=4.0, shift=2.0), np.zeros(3)
    score = 2.5
    suspicion = chart.suspicion(Evidence(np.array([score]), 0, 0), memory)

    def log_density(x: float, mean: float, variance: float) -> float:
        return -0.5 * math.log(2 * math.pi * variance) - (x - mean) ** 2 / (2 * variance)

    honest = log_density(score, 0.0, 1.0)
    assert memory[0] == pytest.approx(log_density(score, 0.0, 4.0) - honest)
    assert memory[1] == pytest.approx(log_density(score, 2.0, 1.0) - honest)
    assert memory[2] == 0.0
    assert suspicion == max(memory)


def watch_one_liar(defence: Cusum, sizes: list[float]) -> Watch:
    """Client 0 sends so much more than the server has, in turn; four others a little."""
    watch = Watch(defence, WatchPlan(10.0, np.ones((1, 5))), 5)
    for n, size in enumerate(sizes):
        uploads = np.array([[size], [0.5], [-0.4], [0.3], [-0.6]])
        out = watch.judge(uploads, np.zeros(1), np.arange(5), n)
        assert np.array_equal(out, watch.is_out)
    return watch


def test_who_lies_is_left_out_at_once_and_let_in_after_some_good_uploads() -> None:
    defence = Cusum(return_after=3)
    assert watch_one_liar(defence, [9.0]).is_out.tolist() == [True, False, False, False, False]
    assert watch_one_liar(defence, [9.0, 0.1, 0.1]).is_out[0]
    let_in = watch_one_liar(defence, [9.0, 0.1, 0.1, 0.1, 0.1])
    assert not let_in.is_out[0]
    assert (let_in.first[0], let_in.exclusions[0], let_in.finished[0]) == (0, 1, 3)
    again = watch_one_liar(defence, [9.0, 0.1, 9.0, 0.1, 0.1])
    assert again.is_out[0], "an alarm while it is out begins the time anew"
    assert (again.exclusions[0], again.since[0]) == (1, 0)
    assert watch_one_liar(defence.replace(return_after=0), [9.0] + [0.1] * 50).is_out[0]


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1e200])
def test_what_is_not_finite_is_a_lie_and_silence_is_none(number: float) -> None:
    assert watch_one_liar(Cusum(), [number]).is_out[0]
    silent = watch_one_liar(Cusum(), [math.nan] * 5)
    assert not silent.is_out.any()


def test_when_all_are_far_from_the_server_nobody_is_suspect() -> None:
    """A poisoned server is far from everybody: what the others show makes up for it."""
    watch = Watch(Cusum(reference="server"), WatchPlan(10.0, np.ones((1, 5))), 5)
    for n in range(20):
        assert not watch.judge(np.array([[20.0], [21.0], [-19.0], [22.0], [-20.0]]), np.zeros(1), np.arange(5), n).any()


def test_a_threshold_lets_as_many_peaks_through_as_are_allowed() -> None:
    rng = np.random.default_rng(0)
    peaks = rng.pareto(3.0, 200_000) + 0.5
    counts = np.bincount((np.log(peaks / 0.01) / math.log(1.02)).astype(int), minlength=1400)
    for allowed in (1000.0, 20.0, 10.0):
        assert np.sum(peaks > find_threshold(counts, allowed)) == pytest.approx(allowed, rel=0.15)
    # Extrapolated, to a hundred times fewer than the highest.
    true = (200_000 / 0.01) ** (1 / 3) - 0.5
    assert true * 0.7 < find_threshold(counts, 0.01) < true * 1.5
    assert find_threshold(np.zeros(1400, np.int64), 1.0) > 0


def test_suspicion_that_still_climbs_at_the_end_of_a_run_counts_as_a_peak() -> None:
    """A client whose honest uploads differ for good never falls back; uncounted, its alarms would break the promise."""
    plan = WatchPlan(math.inf, np.zeros((0, 0)))
    watching = Watching(SMALL.defence, plan, clients=2, trials=2)
    watching.peak[:, 0] = 7.0
    watching.peaks[1, 5] = 4
    counts = all_peaks(watching)
    assert counts.sum() == 6
    assert counts[5] == 4
    assert counts[int(math.log(7.0 / 0.01) / math.log(1.02))] == 2


@pytest.mark.parametrize(("shared", "expected"), [(1, 12.231), (5, 74.144)])
def test_the_thresholds_of_the_papers_fleet_are_the_published_ones(shared: int, expected: float) -> None:
    """They stand in docs/defence.md; a change there is a change of published numbers."""
    plan = make_plan(Scenario(num_clients=50, dimension=5, num_shared=shared, defence=Cusum()))
    assert plan.threshold == pytest.approx(expected, rel=1e-4)


def test_variances_are_found_for_as_many_clients_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(num_clients=6, dimension=3, iterations=4)
    # White inputs and random masks: one entry stands for all, so there are 6² moments.
    monkeypatch.setattr(residuals, "_MOST_MOMENTS", 36)
    assert residuals.honest_variance(scenario).shape == (4, 6)
    monkeypatch.setattr(residuals, "_MOST_MOMENTS", 35)
    with pytest.raises(NotCoveredError, match="too long for 6 clients"):
        residuals.honest_variance(scenario.replace(stepsize=0.1))  # another one, since answers are kept


def test_a_lower_rate_of_false_alarms_is_a_higher_threshold() -> None:
    thresholds = [
        make_plan(SMALL.replace(defence=Cusum(false_alarm_every=every))).threshold for every in (100, 1000, 1e4, 1e6)
    ]
    assert np.all(np.diff(thresholds) > 0)


def test_a_plan_says_where_its_variance_is_from() -> None:
    assert not make_plan(SMALL).is_estimated
    assert not make_plan(SMALL.replace(aggregation="median")).is_estimated, "clients differ as under the mean"
    online = SMALL.replace(algorithm="online-fed", defence=Cusum(threshold=1.0))  # nothing is simulated
    assert make_plan(online).is_estimated
    with pytest.raises(NotCoveredError, match="online-fed"):
        make_plan(online.replace(defence=Cusum(variance="theory", threshold=1.0)))
    assert make_plan(SMALL.replace(defence=None)) is None


def test_data_of_your_own_are_watched_too(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), 6 * 80
    inputs = rng.normal(size=(rows, 3))
    outputs = inputs @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=rows)
    lines = ["client,y,a,b,c"]
    lines += [f"c{n // 80},{y},{','.join(map(str, x))}" for n, (x, y) in enumerate(zip(inputs, outputs, strict=True))]
    (tmp_path / "table.csv").write_text("\n".join(lines), encoding="utf-8")
    data = psofed.read_data(tmp_path / "table.csv", "client", "y")
    attack, defence = Gaussian(num_byzantine=2, probability=0.6), Cusum(false_alarm_every=100.0)
    scenario = Scenario.from_data(data, num_participants=4, attack=attack, defence=defence)
    record = simulate(scenario, trials=4).defence
    assert record.variance == "estimated"
    assert record.found > 0.5
    with pytest.raises(NotCoveredError, match="your own data"):
        simulate(scenario.replace(defence=Cusum(variance="theory")), trials=1)


def test_no_defence_and_none_are_one_scenario() -> None:
    plain = SMALL.replace(defence=None)
    assert SMALL.replace(defence="none") == plain
    assert with_values(SMALL, {"defence.kind": "none"}) == plain
    assert with_values(SMALL, {"defence": None}) == plain
    assert "defence" not in plain.to_mapping()
    assert with_values(plain, {"defence.kind": "cusum"}).defence == Cusum()
    assert with_values(plain, {"defence.ratio": 3.0}).defence == Cusum(ratio=3.0)
    assert Scenario.from_toml(SMALL.to_toml()) == SMALL
    with pytest.raises(InvalidValueError, match=r"defence.kind .*cusum.*none"):
        with_values(plain, {"defence.kind": "police"})
    with pytest.raises(InvalidValueError, match=r"defence.ratio must be "):
        with_values(plain, {"defence.ratio": 1})


def test_a_defence_is_refused_by_name_where_it_has_no_meaning() -> None:
    with pytest.raises(NotCoveredError, match=r'defence.kind = "cusum".*depends on the uploads'):
        predict(SMALL)
    with pytest.raises(NotCoveredError, match=r"excluded_download.*online-fed"):
        simulate(SMALL.replace(algorithm="online-fed", defence=Cusum(excluded_download=False)), trials=1)


def test_who_was_left_out_is_in_the_result_its_json_and_its_file(tmp_path: Path) -> None:
    result = simulate(SMALL, trials=5, seed=1)
    record = result.defence
    assert record.first.shape == (5, 6)
    assert record.is_byzantine.tolist() == [True, True, False, False, False, False]
    assert record.found > 0.5
    plain = json.loads(json.dumps(result.to_json(), allow_nan=False))["defence"]
    assert plain["found"] == record.found
    assert len(plain["clients"]["excluded_share_of_trials"]) == 6
    result.save(tmp_path / "result.nc")
    loaded = load_result(tmp_path / "result.nc")
    assert loaded.to_json() == result.to_json()
    assert np.array_equal(loaded.defence.time_out, record.time_out)
    assert simulate(SMALL.replace(attack=None), trials=2).defence.describe().startswith("Defence: ")


def test_the_command_line_says_who_was_found(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SMALL.replace(defence=None).to_toml(), encoding="utf-8")
    arguments = ["simulate", str(tmp_path / "s.toml"), "--trials", "4", "--set", "defence.threshold=8"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "Defence: found" in " ".join(done.output.split())
    done = CliRunner().invoke(app, [*arguments, "--set", "defence.kind=none"])
    assert done.exit_code == 0
    assert "Defence" not in done.output
    done = CliRunner().invoke(app, ["predict", arguments[1], "--set", "defence.kind=cusum"])
    assert done.exit_code != 0


def test_the_median_square_is_that_of_a_standard_normal() -> None:
    from scipy.stats import chi2

    assert pytest.approx(chi2(1).median(), rel=1e-14) == MEDIAN_SQUARE


def test_where_theory_has_no_finite_variance_it_is_estimated() -> None:
    fleet = psofed.Scenario(num_clients=3, dimension=2, stepsize=1e6, iterations=30, defence="cusum")
    assert psofed.simulate(fleet, trials=1).defence.variance == "estimated"
    with pytest.raises(psofed.NotCoveredError, match=r"grows without bound at stepsize = 1e\+06"):
        psofed.simulate(fleet.replace(defence=psofed.defences.Cusum(variance="theory")), trials=1)


def watch_past(threshold: float, num_clients: int) -> Watch:
    return Watch(Cusum(reference="server"), WatchPlan(threshold, np.zeros((0, 0)), by_past=True), num_clients)


def test_a_client_is_compared_with_its_own_past() -> None:
    """The fleet begins at its upper median: of 0, 1, 1, 4 without the 0, over that of a normal number's square."""
    watch = watch_past(1e300, 5)
    watch.judge(np.array([[0.0], [1.0], [-1.0], [2.0]]), np.zeros(1), np.arange(4), 0)
    begins = 1.0 / MEDIAN_SQUARE
    moved = [begins + 0.05 * (square - begins) for square in (0.0, 1.0, 1.0, 4.0)]
    assert watch.relative == pytest.approx([*moved, 0.0])
    # A newcomer begins with the fleet's, and one upload counts as at most nine times the variance.
    watch.judge(np.array([[100.0]]), np.zeros(1), np.array([4]), 1)
    fleet = moved[1]  # of the four, without the lowest, the median
    assert watch.relative == pytest.approx([*moved, fleet + 0.05 * 8 * fleet])


def test_a_variance_stays_within_a_range_of_the_fleets() -> None:
    watch = watch_past(1e300, 4)
    for n in range(300):
        watch.judge(np.array([[0.0], [1.0], [1.0], [100.0]]), np.zeros(1), np.arange(4), n)
    assert watch.relative == pytest.approx([0.05, 1.0, 1.0, 20.0], rel=1e-3)


def test_at_most_a_third_is_excluded_at_a_time_by_the_past() -> None:
    watch = watch_past(10.0, 7)
    rng = np.random.default_rng(0)
    for n in range(60):
        uploads = 0.1 * rng.normal(size=(7, 2))
        if n >= 30:
            uploads[:3] += 10.0
        watch.judge(uploads, np.zeros(2), np.arange(7), n)
        assert watch.is_out.sum() <= 2
    assert watch.is_out.tolist() == [True, True, False, False, False, False, False]
    few = watch_past(0.0, 3)
    assert not few.judge(np.array([[9.0], [1.0], [-2.0]]), np.zeros(1), np.arange(3), 0).any()


@pytest.mark.parametrize(("clients", "echoes", "most"), [(5, 2, 0.08), (10, 4, 0.12)])
def test_clients_that_echo_the_server_do_not_get_honest_ones_excluded(clients: int, echoes: int, most: float) -> None:
    """Today's estimate over the fleet's level excludes them for most of the time."""
    quiet = psofed.attacks.ScaledUpdate(num_byzantine=echoes, probability=1.0, scale=0.0)
    fleet = Scenario(
        num_clients=clients, num_participants=clients, dimension=5, num_shared=2, stepsize=0.1, iterations=1000,
        attack=quiet, defence=Cusum(variance="past", threshold=50.0),
    )  # fmt: skip
    assert simulate(fleet, trials=16, seed=1).defence.honest_time_out < most
    by_level = fleet.replace(defence=Cusum(variance="estimated", threshold=90.0))
    assert simulate(by_level, trials=16, seed=1).defence.honest_time_out > 0.5


def test_false_alarms_by_the_past_are_as_rare_as_promised() -> None:
    fleet = Scenario(
        num_clients=6, num_participants=6, dimension=5, num_shared=2, iterations=1000,
        defence=Cusum(variance="past", false_alarm_every=500.0),
    )  # fmt: skip
    record = simulate(fleet, trials=128, seed=1).defence
    assert record.variance == "past"
    assert 300 < record.iterations_per_false_alarm < 800
