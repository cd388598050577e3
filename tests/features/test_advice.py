"""The advice is right where the truth is known, says so where it is not clear, and its interval holds."""

import json
from dataclasses import replace

import numpy as np
import pytest

import psofed
from psofed import InvalidValueError, PsofedError, Scenario, advise, from_arrays
from psofed.settings.advice import AdviceSettings
from psofed.studies.advice.cautions import cautions
from psofed.studies.advice.groups import estimate_laws, split_by_law
from psofed.studies.advice.judging import TOLERANCE, Gain, Judge, ratio_gain
from psofed.studies.advice.ways import Runner, least_squares_errors, run_federation
from psofed.studies.advice.what_if import attack_on, names_clients

pytestmark = [pytest.mark.studies, pytest.mark.takes(12)]


def make(clients: int, rows: int, spread: float, seed: int = 0, dimension: int = 3):
    """Clients whose weights lie `spread` apart, each with as many rows beyond the warm-up."""
    rng = np.random.default_rng(seed)
    count = rows + 20
    weights = 0.6 + spread * np.random.default_rng(99).standard_normal((clients, dimension))
    x = rng.standard_normal((count, clients, dimension))
    y = (x * weights).sum(axis=2) + rng.standard_normal((count, clients))
    names = np.tile([f"S{k:02d}" for k in range(clients)], count)
    return from_arrays(x.reshape(-1, dimension), y.reshape(-1), names)


@pytest.fixture(scope="module")
def helpful():
    return advise(make(20, 40, 0.0))


def test_few_rows_of_the_same_target_should_be_federated(helpful) -> None:
    assert helpful.verdict == "federate"
    assert helpful.answer.startswith("Federate: sharing ")
    assert helpful.federation.gain.interval[0] > 0
    errors = {name: helpful.method(name).error for name in ("pooled", "federation", "alone", "average")}
    assert max(errors["pooled"], errors["federation"]) < errors["alone"] < errors["average"]


def test_targets_that_differ_should_not_be_federated() -> None:
    advice = advise(make(10, 200, 1.0), byzantine=0)
    assert advice.verdict == "stay alone"
    assert advice.answer.startswith("Do not federate: ")
    assert advice.federation.gain.interval[1] < -0.2
    assert advice.what_if is None
    assert any("better alone" in station.note for station in advice.stations)
    assert [len(group.clients) for group in advice.groups] == [10]


def test_where_it_makes_no_difference_that_is_said() -> None:
    advice = advise(make(10, 150, 0.2), byzantine=0)
    assert advice.verdict == "no clear difference"
    assert advice.answer.startswith("We can't tell whether federating helps. Best guess: ")
    low, high = advice.federation.gain.interval
    assert low < 0 < high


def test_columns_that_say_nothing_are_named_as_such() -> None:
    rng = np.random.default_rng(3)
    data = from_arrays(rng.standard_normal((600, 2)), rng.standard_normal(600), np.arange(600) % 5)
    assert "No model is clearly better than each client's running mean" in advise(data, byzantine=0).answer


def test_the_scenarios_stepsize_does_not_matter() -> None:
    data = make(6, 40, 0.0)
    answers = {
        advise(Scenario.from_data(data, stepsize=mu, num_participants=data.num_clients), byzantine=0).answer
        for mu in (0.001, 0.02, 0.5)
    }
    assert len(answers) == 1


def test_a_single_client_has_nobody_to_federate_with() -> None:
    advice = advise(make(1, 60, 0.0))
    assert advice.verdict == "stay alone"
    assert advice.answer == "There is nothing to federate: S00 is the only client."
    assert advice.federation.error == pytest.approx(advice.alone.error, rel=1e-9)


def test_lies_hurt_the_mean_more_than_the_median_and_count_on_the_honest_alone(helpful) -> None:
    mean, median = helpful.what_if.methods
    assert (mean.rule, median.rule) == ("mean", "median")
    assert median.error < mean.error
    assert mean.gain.value < helpful.federation.gain.value
    assert len(helpful.what_if.byzantine) == 4
    assert helpful.what_if.attacks[0]["kind"] == "sign-flip"
    assert helpful.sentences[-1].startswith("If 4 of the 20 clients were Byzantine, the honest ones would have ")


@pytest.mark.parametrize(("aggregation", "rule"), [("krum", "trimmed-mean"), ("trimmed-mean", None)])
def test_who_lies_and_how_and_the_rule_against_it_can_be_said(aggregation: str, rule: str | None) -> None:
    attack = psofed.attacks.Gaussian(variance=9.0, probability=1.0, clients=["S01"])
    scenario = Scenario.from_data(make(6, 30, 0.0), num_participants=6, attack=attack, aggregation=aggregation)
    advice = advise(scenario, rule=rule)
    assert advice.what_if.byzantine == ("S01",)
    assert advice.what_if.methods[1].rule == "trimmed-mean"


def test_the_scenario_says_how_many_lie_and_0_skips_them() -> None:
    attack = psofed.attacks.Gaussian(variance=9.0, probability=1.0, num_byzantine=2)
    scenario = Scenario.from_data(make(6, 30, 0.0), num_participants=6, attack=attack)
    assert len(advise(scenario).what_if.byzantine) == 2
    assert len(advise(scenario, byzantine=0.4).what_if.byzantine) == 3
    named = scenario.replace(attack=attack.replace(clients=["S01"]))
    assert advise(named, byzantine=0).what_if is None
    with pytest.raises(InvalidValueError, match="byzantine must be left out"):
        advise(named, byzantine=0.4)


def test_an_attack_that_names_clients_is_on_the_federation_of_all() -> None:
    """Any other draws its Byzantine clients among those that federate."""
    gaussian = psofed.attacks.Gaussian
    base = Scenario.from_data(make(10, 20, 0.0))
    for attack, is_named in (
        (None, False),
        (gaussian(num_byzantine=2), False),
        (gaussian(clients=["S01", "S07"]), True),
        ([gaussian(clients=[1]), gaussian(clients=[8])], True),
        (gaussian(num_byzantine=2, byzantine_set="redrawn"), True),
    ):
        scenario = base.replace(attack=attack)
        assert names_clients(scenario) == is_named
        assert is_named or len(attack_on(5, scenario, AdviceSettings()).clients) == 1


def test_remarks_are_what_was_measured() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((220, 12, 3))
    y = 0.6 * x.sum(axis=2) + rng.standard_normal((220, 12))
    y[:, 8] = np.linspace(0.3, 3.0, 220) * rng.standard_normal(220)
    names = np.array([f"S{k:02d}" for k in range(12)])
    keep = np.ones((220, 12), bool)
    keep[33:, 11] = False  # 13 samples after the warm-up: none is judged
    data = from_arrays(x[keep], y[keep], np.tile(names, (220, 1))[keep])
    advice = advise(data, byzantine=0)
    assert {s.name: s.flag for s in advice.stations if s.flag} == {"S08": "hard to predict", "S11": "too few rows"}


def test_a_common_shock_known_from_the_first_client_does_not_help_the_pooled_model() -> None:
    """What all targets of an iteration share cannot be forecast, but would be learned from the first of them."""
    rng = np.random.default_rng(7)
    x, shocks = (np.repeat(values, 20) for values in (rng.choice([-1.0, 1.0], 120), rng.standard_normal(120)))
    data = from_arrays(x[:, None], shocks, np.arange(2400) % 20)
    assert advise(data, byzantine=0).method("pooled").gain.value < 0.02
    baselines = psofed.simulate(Scenario.from_data(data, stepsize=0.1)).details["data"]["baselines"]
    assert baselines["pooled"] > baselines["average"]


def test_nothing_is_chosen_or_judged_by_what_comes_later() -> None:
    """Rows after a block change neither the settings used up to it nor the errors in it."""
    data = make(4, 120, 0.1)
    other = replace(data, targets=tuple(np.append(y[:60], 7.0 * y[60:] + 3.0) for y in data.targets))
    found = []
    for table in (data, other):
        runner = Runner(Scenario.from_data(table, num_participants=4), AdviceSettings(trials=1))
        found.append(runner.judge.follow(runner.lms()).errors[0])
    np.testing.assert_allclose(found[0][:12], found[1][:12], rtol=1e-9)  # blocks 6 to 11 of 24 end at row 60
    assert not np.allclose(found[0][12:], found[1][12:])


@pytest.mark.parametrize("defence", [None, psofed.defences.Cusum(threshold=1.0)])
def test_a_federations_errors_are_the_simulations(defence) -> None:
    data = make(4, 60, 0.1)
    scenario = Scenario.from_data(data, num_participants=2, stepsize=0.05, num_shared=2, defence=defence)
    runner = Runner(scenario, AdviceSettings(trials=16, seed=3))
    errors, _ = run_federation(scenario, 3, 16, runner.judge.edges)
    result = psofed.simulate(scenario, trials=16, seed=3, tail=scenario.iterations)
    assert errors.sum() / runner.judge.counts.sum() == pytest.approx(result.network_mse.mean, rel=1e-9)


def test_blocks_give_every_client_the_same_weight() -> None:
    blocks = Judge.of((10, 1000), 4)
    assert blocks.edges[0] == 0
    assert blocks.edges[-1] == 1000
    assert (blocks.counts.sum(axis=0) == [10, 1000]).all()
    shares = (blocks.counts / [10, 1000]).sum(axis=1)
    assert shares.max() < 0.75  # of 2 in all: none holds the lion's share
    assert len(Judge.of((10,)).counts) == 10


def test_the_interval_of_a_ratio_covers_the_truth_though_blocks_are_correlated() -> None:
    """Errors share most of their noise, as those of two ways to learn on the same rows; the rest lasts two blocks."""
    rng = np.random.default_rng(8)
    hits, runs = 0, 2000
    for _ in range(runs):
        common, slow = rng.gamma(4.0, 0.25, 18), rng.standard_normal(19)
        first = 0.9 * common + 0.05 * (slow[1:] + slow[:-1])
        low, high = ratio_gain(first, common + 0.05 * rng.standard_normal(18)).interval
        hits += low <= 0.1 <= high
    assert hits / runs == pytest.approx(0.95, abs=0.015)


def law_table(kind: str, seed: int, clients: int = 25, rows: int = 150, noise: float = 1.0):
    """Clients with one law, two of which have others; or two laws; or laws of their own."""
    rng = np.random.default_rng((seed, 7))
    weights = np.tile(rng.choice([-1, 1], 4) * rng.uniform(0.3, 0.8, 4), (clients, 1))
    if kind == "two others":
        weights[-2:] *= -rng.uniform(0.6, 1.2, (2, 4))
    elif kind == "two laws":
        weights[: clients // 2] *= -1
    elif kind == "none alike":
        weights = rng.choice([-1, 1], (clients, 4)) * rng.uniform(0.3, 0.8, (clients, 4))
    x = rng.standard_normal((rows, clients, 4))
    return x, (x * weights).sum(axis=2) + noise * rng.standard_normal((rows, clients))


@pytest.mark.parametrize(
    ("kind", "clients", "right"),
    [
        ("all alike", 25, lambda g: g == [25]),
        ("all alike", 6, lambda g: g == [6]),
        ("two others", 25, lambda g: g[0] == 23),
        ("two laws", 25, lambda g: g == [13, 12]),
        ("none alike", 25, lambda g: g[0] <= 6),
    ],
)
def test_clients_are_grouped_by_their_laws_in_nearly_all_tables(kind: str, clients: int, right) -> None:
    found = []
    for seed in range(40):
        x, y = law_table(kind, seed, clients)
        laws = estimate_laws(list(x.swapaxes(0, 1)), list(y.T), np.arange(0, 151, 15))
        found.append([len(group) for group in split_by_law(laws)[-1]])
    assert sum(map(right, found)) >= 38


@pytest.mark.parametrize(
    ("kind", "verdict", "sizes", "start"),
    [
        ("two others", "federate", [23], "23 of your 25 clients have "),
        ("two laws", "federate", [13, 12], "your 25 clients, in groups of 13 and 12, have "),
        ("none alike", "stay alone", [25], "Do not federate: "),
    ],
)
def test_the_answer_is_about_those_who_should_federate(kind: str, verdict: str, sizes: list, start: str) -> None:
    x, y = law_table(kind, 1)
    names = np.tile([f"S {k:02d}" for k in range(25)], len(y))
    data = from_arrays(x.reshape(-1, 4), y.reshape(-1), names)
    advice = advise(data, byzantine=0.2 if kind == "two others" else 0, trials=8)
    assert advice.verdict == verdict
    assert [len(group.clients) for group in advice.groups] == sizes
    assert start in advice.answer
    if kind == "two others":
        assert " Leave out S 23 and S 24." in advice.answer
        assert advice.left_out == ("S 23", "S 24")
        assert advice.scenario.num_clients == 23
        assert advice.everybody_gain.value < 0 < advice.federation.gain.interval[0]
        assert "--leave-out 'S 23,S 24'" in advice.report().next_step.command
        assert advice.sentences[-1].startswith("If 5 of the 23 clients were Byzantine, ")


def test_clients_of_one_law_stay_together_where_little_noise_shows_how_each_is_scaled() -> None:
    x, y = law_table("two others", 1, rows=250, noise=0.3)
    data = from_arrays(x.reshape(-1, 4), y.reshape(-1), np.tile([f"S{k:02d}" for k in range(25)], len(y)))
    laws = estimate_laws(data.inputs, data.targets, np.arange(0, len(data.targets[0]) + 1, 23))
    assert len(split_by_law(laws)[-1]) > 3
    advice = advise(data, byzantine=0, trials=8)
    assert [len(group.clients) for group in advice.groups] == [23]
    assert "Leave out S23 and S24." in advice.answer


def oddity(kind: str):
    """A table of twelve clients with one oddity, or none."""
    rng = np.random.default_rng(0)
    x, noise = rng.uniform(-2.0, 2.0, (250, 12, 2)), rng.standard_normal((250, 12))
    y, keep = x.sum(axis=2) + noise, np.ones((250, 12), bool)
    x[..., 0] = 20 + 5 * x[..., 0]
    if kind == "code":
        y.flat[rng.choice(y.size, 61, replace=False)] = -999.0
    elif kind == "copy":
        x[..., 1] = 3 * y + 1
    elif kind == "unit from a row on":
        x[120:, 3, 0] = 1.8 * x[120:, 3, 0] + 60
    elif kind == "unit of a client":
        x[:, 5, 0] *= 1000
    elif kind == "rates":
        keep[::2, :6] = False
    elif kind == "classes":
        y = 1.0 * (y > 0)
    elif kind == "walk":
        x = np.cumsum(rng.standard_normal(x.shape), axis=0)
    names = np.tile([f"S{k:02d}" for k in range(12)], (250, 1))
    return from_arrays(x[keep], y[keep], names[keep])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("none", []),
        ("walk", []),
        ("code", ["y is −999 in 61 rows, far from all its other values."]),
        ("copy", ["x2 is a copy of y, up to scale: is it known before the prediction?"]),
        ("unit from a row on", ["x1 of S03 jumps from about 19.6 to about 96.4 at its row 121 and stays there"]),
        ("unit of a client", ["x1 is about 1.94e+04 at S05 and about 20 elsewhere: compare the units."]),
        ("rates", ["Clients have 125 to 250 rows. If they measure at different rates, their n-th rows"]),
        ("classes", ["y has only the values 0 and 1: it is predicted as a number"]),
    ],
)
def test_oddities_are_named_before_the_answer(kind: str, words: list) -> None:
    notes = list(cautions(oddity(kind)))
    assert len(notes) == len(words)
    assert all(note.startswith(start) for note, start in zip(notes, words, strict=True))
    if kind == "copy":
        advice = advise(oddity(kind), byzantine=0, trials=1)
        assert advice.report().headline.startswith(words[0])
        assert advice.answer in advice.report().headline


def test_rates_are_compared_by_time_where_the_table_has_times(tmp_path) -> None:
    rows = [f"2024-01-{1 + n // 24:02d} {n % 24:02d}:00,fast,{n % 7},{n % 5}" for n in range(60)]
    rows += [f"2024-{1 + n // 28:02d}-{1 + n % 28:02d} 00:00,slow,{n % 7},{n % 5}" for n in range(60)]
    (tmp_path / "t.csv").write_text("time,who,x,y\n" + "\n".join(rows), encoding="utf-8")
    (note,) = cautions(psofed.read_data(tmp_path / "t.csv", "who", "y"))
    assert note.startswith("fast has a row every 3,600 s and slow every 86,400 s: their n-th rows")


def curved(clients: int = 12, rows: int = 220):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (rows, clients, 2))
    y = np.sin(2 * x[..., 0]) * np.cos(1.5 * x[..., 1]) + 0.1 * rng.standard_normal((rows, clients))
    return from_arrays(x.reshape(-1, 2), y.reshape(-1), np.arange(rows * clients) % clients)


def test_a_relation_that_is_not_linear_is_mentioned_and_how_far_random_features_reach(monkeypatch) -> None:
    advice = advise(curved(), byzantine=0, trials=1)
    assert advice.method("rff").error < 0.6 * advice.alone.error
    assert "The relation is not linear: 100 random features would have " in advice.answer
    assert 'add `model.kind = "rff"`, `model.features = 100`' in advice.answer
    pytest.importorskip("sklearn")
    assert "Even so, gradient boosting of trees on the pooled rows has " in advice.answer
    monkeypatch.setattr("psofed.studies.advice.ways.find_spec", lambda name: None)
    without = advise(curved(), byzantine=0, trials=1)
    assert "boosting" not in {method.name for method in without.methods}
    assert "boosting" not in without.answer


def test_nothing_is_said_of_a_relation_that_is_linear(helpful) -> None:
    assert "linear" not in helpful.answer


def test_a_gain_that_rests_on_a_few_extreme_rows_is_no_answer(tmp_path) -> None:
    """Rows of one law, far larger than the rest, gain from federating; all others do not, since their laws differ."""
    rng = np.random.default_rng(1)
    x, laws = rng.standard_normal((200, 10, 2)), 0.7 + 0.6 * rng.standard_normal((10, 2))
    y = (x * laws).sum(axis=2) + 0.5 * rng.standard_normal((200, 10))
    is_extreme = (rng.random((200, 10)) < 0.01) & (np.arange(200)[:, None] > 30)
    x[..., 0] = np.where(is_extreme, 4 * np.sign(x[..., 0]), x[..., 0])
    y = np.where(is_extreme, 8 * x[..., 0], y)
    days = np.datetime64("2024-01-01") + np.arange(200)
    lines = [f"{days[n]},S{k},{x[n, k, 0]},{x[n, k, 1]},{y[n, k]}" for n in range(200) for k in range(10)]
    (tmp_path / "t.csv").write_text("day,who,a,b,y\n" + "\n".join(lines), encoding="utf-8")
    advice = advise(tmp_path / "t.csv", "who", "y", byzantine=0, trials=1)
    assert advice.verdict == "depends on extreme rows"
    assert advice.federation.gain.interval[0] > 0 > advice.bounded_gain.value
    assert advice.answer.startswith("It depends on a few extreme rows: sharing ")
    assert f"That is {len(advice.extreme_rows)} rows: {advice.extreme_rows[0]}, " in advice.answer
    client, day = advice.extreme_rows[0].split()
    assert is_extreme[list(days).index(np.datetime64(day)), int(client[1:])]


def test_a_newcomer_gains_from_clients_alike_and_not_from_others() -> None:
    alike, others = (advise(make(12, 100, spread), byzantine=0, trials=4) for spread in (0.0, 1.0))
    low, high = alike.newcomer.interval
    assert 0 < low <= alike.newcomer.rows <= high <= alike.newcomer.most
    assert others.newcomer.rows < alike.newcomer.rows
    assert "A newcomer needs " in alike.answer
    assert advise(make(3, 60, 0.0), byzantine=0, trials=1).newcomer is None


def test_recursive_least_squares_is_what_solving_the_normal_equations_gives() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    for factor in (1.0, 0.9):
        squares = least_squares_errors([x, x[:10]], [y, y[:10]], [factor])[0]
        rows = np.column_stack([x, np.ones(30)])
        for n in range(30):
            weights = factor ** np.arange(n - 1, -1.0, -1.0)
            moments = (rows[:n].T * weights) @ rows[:n] + factor**n * np.eye(3)
            solution = np.linalg.solve(moments, (rows[:n].T * weights) @ y[:n])
            assert squares[n, 0] == pytest.approx((y[n] - rows[n] @ solution) ** 2, rel=1e-6)
        np.testing.assert_allclose(squares[:10, 1], squares[:10, 0])
        assert not squares[10:, 1].any()


def test_a_naive_forecast_that_is_better_is_the_answer() -> None:
    rng = np.random.default_rng(5)
    walk = np.cumsum(rng.standard_normal((300, 3)), axis=0).reshape(-1)
    advice = advise(from_arrays(rng.standard_normal((900, 2)), walk, np.arange(900) % 3), byzantine=0)
    assert (advice.verdict, advice.winner) == ("naive", "persistence")
    start = "Do not federate: no model is needed, the last value of the target has "
    assert advice.answer.startswith(start)


def test_least_squares_alone_is_the_answer_where_lms_is_too_slow() -> None:
    rng = np.random.default_rng(6)
    common = rng.standard_normal((900, 1))
    x = common + 0.1 * rng.standard_normal((900, 3))
    y = x @ [5.0, -5.0, 1.0] + 0.1 * rng.standard_normal(900)
    advice = advise(from_arrays(x, y, np.arange(900) % 3), byzantine=0)
    assert (advice.verdict, advice.winner) == ("stay alone", "rls")
    assert "recursive least squares (RLS) at each client alone has" in advice.answer


def test_no_verdict_within_the_tolerance_that_breaks_ties() -> None:
    assert not Gain(-0.01, (-0.013, -0.007)).matters
    assert not Gain(TOLERANCE / 2, (0.001, 0.02)).matters
    assert Gain(-1.1 * TOLERANCE, (-0.03, -0.02)).matters
    assert not Gain(0.1, (-0.01, 0.2)).matters


def test_divergence_and_too_few_blocks_are_no_numbers() -> None:
    assert ratio_gain(np.array([1.0, np.inf, 1.0]), np.ones(3)).value == -np.inf
    assert ratio_gain(np.array([1.0, np.inf, 1.0]), np.ones(3)).is_clear
    assert np.isnan(ratio_gain(np.ones(2), np.ones(2)).interval[0])
    assert not Gain(0.1, (np.nan, np.nan)).is_clear


@pytest.mark.parametrize("ending", [".json", ".csv"])
def test_advice_is_saved_with_the_stations_names(helpful, tmp_path, ending: str) -> None:
    path = tmp_path / f"advice{ending}"
    helpful.save(path)
    if ending == ".csv":
        assert path.read_text().splitlines()[4].startswith("S03,60,")
        return
    plain = json.loads(path.read_text())
    assert plain["answer"] == helpful.answer
    assert [s["name"] for s in plain["stations"]] == [f"S{k:02d}" for k in range(20)]
    assert Scenario.from_mapping(plain["scenario"]) == helpful.scenario
    with pytest.raises(PsofedError, match=r"advice\.json: JSON is not read back; .*psofed advise --plot"):
        psofed.load_result(path)
    with pytest.raises(PsofedError, match=r"must be a name ending in \.json, \.csv or \.toml"):
        helpful.save(tmp_path / "advice.nc")


def test_the_picture_shows_every_station_by_name_or_all_as_a_cloud(helpful) -> None:
    few = helpful.plot()
    labels = [text.get_text() for text in few.axes[1].get_yticklabels()]
    assert labels == [s.name for s in helpful.stations]
    far = replace(helpful.methods[-1], gain=Gain(-7.63, (-9.0, -6.0)))
    clipped = replace(helpful, methods=(*helpful.methods[:-1], far)).plot().axes[0]
    assert clipped.get_xlim()[0] > -700
    assert "−763" in {text.get_text() for text in clipped.texts}
    many = advise(make(45, 12, 0.0, dimension=1), byzantine=0)
    assert len(many.plot().axes[1].get_yticklabels()) == 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"byzantine": 0.5}, r"byzantine must be at least 0 and below 0\.5"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"rule": "nonsense"}, "nonsense"),
    ],
)
def test_what_cannot_be_advised_on_is_refused_by_name(options: dict, message: str) -> None:
    with pytest.raises(PsofedError, match=message):
        advise(make(3, 20, 0.0), **options)
    with pytest.raises(PsofedError, match="your own data"):
        advise(Scenario.from_data(make(3, 20, 0.0), algorithm="qs-fed"))
    with pytest.raises(InvalidValueError, match="drawn streams"):
        advise(Scenario(num_clients=3, dimension=3))
    with pytest.raises(InvalidValueError, match="client_column"):
        advise("stations.csv")


def test_the_command_line_answers_first_and_keeps_names_as_they_are(tmp_path, psofed_command) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((200, 2))
    y = x.sum(axis=1) + rng.standard_normal(200)
    names = ("[bold]Łódź", "$5")
    lines = [f"{names[n % 2]},{x[n, 0]:.4f},{x[n, 1]:.4f},{y[n]:.4f}" for n in range(200)]
    (tmp_path / "t.csv").write_text("who,a,b,y\n" + "\n".join(lines), encoding="utf-8")
    table = ["--data", tmp_path / "t.csv", "--client-column", "who", "--target-column", "y"]
    done = psofed_command("advise", *table, "--plot", tmp_path / "p.png")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("Federat", "We can't tell", "Do not federate"))
    assert "[bold]Łódź" in done.stdout
    assert (tmp_path / "p.png").stat().st_size > 10_000
    plain = json.loads(psofed_command("advise", *table, "--json", "--byzantine", 0).stdout)
    assert plain["verdict"] in ("federate", "stay alone", "no clear difference", "naive")
    for bad, message in (
        ([], "advise needs --data"),
        ([*table, "--out", "x.txt"], "a name ending in .json, .csv or .toml"),
        ([*table, "--leave-out", "nobody"], "--leave-out must be names of clients, such as [bold]Łódź, $5"),
    ):
        done = psofed_command("advise", *bad)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", [{"client_column": "c"}, {"min_rows": 50}, {"features": ["x1"]}, {"warmup": 30}])
def test_how_to_read_a_table_is_refused_for_data_that_have_been_read(option):
    X, clients = np.random.default_rng(0).standard_normal((400, 2)), np.arange(400) % 4
    data = psofed.from_arrays(X, X.sum(axis=1), clients)
    (name,) = option
    for given in (data, psofed.Scenario.from_data(data)):
        with pytest.raises(psofed.InvalidValueError, match=f"{name} must be left out"):
            psofed.advise(given, **option)
