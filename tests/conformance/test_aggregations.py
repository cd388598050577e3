"""Every aggregation rule, no exceptions: against its literal form, on bad numbers, in the engine."""

import numpy as np
import pytest
from numba import njit

from psofed import Attack, NotCoveredError, Scenario, Selection, simulate
from psofed.parts.aggregations._shared import RootData
from psofed.parts.options import declared_options, make_options
from psofed.parts.registry import load_part, part_names
from psofed.reference.literal import run_literally

METRICS = ("network_mse", "server_msd", "test_mse")
RULES = part_names("aggregations")
LANES = 3
ROOT_STEPSIZE = 0.4


@njit
def call(hook, entries, sent, options, server):
    hook(entries, sent, options, server)


class Case:
    """Random uploads of several lanes, of which not all share the same entries and some numbers are none."""

    def __init__(self, seed: int, participants: int, dimension: int, shared: int, bad: float) -> None:
        rng = np.random.default_rng(seed)
        self.target, self.server = rng.normal(size=dimension), rng.normal(size=(dimension, LANES))
        chosen = [[rng.permutation(dimension)[:shared] for _ in range(LANES)] for _ in range(participants)]
        self.entries = np.moveaxis(np.array(chosen), 1, 2).astype(np.int32).copy()
        self.sent = rng.standard_t(2, size=(participants, shared, LANES))
        spoiled = rng.random(self.sent.shape) < bad
        self.sent[spoiled] = rng.choice([np.nan, np.inf, -np.inf, 1e200], size=spoiled.sum())
        self.samples = rng.normal(size=(4, dimension + 1, LANES))

    def numbers(self, rule: str, scenario: Scenario) -> np.ndarray:
        if rule == "fltrust":
            return np.concatenate([[ROOT_STEPSIZE / 4, 4, 0], self.samples.ravel()])
        return np.asarray(load_part("aggregations", rule).options(scenario, None))

    def uploads(self, lane: int) -> np.ndarray:
        participants, shared, _ = self.sent.shape
        out = np.full((participants, len(self.target)), np.nan)
        for p in range(participants):
            for m in range(shared):
                i = self.entries[p, m, lane]
                out[p, i] = self.target[i] - self.sent[p, m, lane]
        return out

    def root(self, lane: int) -> RootData:
        inputs = self.samples[:, :-1, lane]
        return RootData(inputs, inputs @ self.target + self.samples[:, -1, lane], ROOT_STEPSIZE)

    def run(self, rule: str, order: np.ndarray | None = None) -> np.ndarray:
        rows = np.arange(len(self.sent)) if order is None else order
        server = self.server.copy()
        hook = load_part("aggregations", rule).aggregate.load()
        call(hook, self.entries[rows], self.sent[rows], self.numbers(rule, of_rule(rule)), server)
        return server


def of_rule(rule: str, **changes: object) -> Scenario:
    values = {"num_clients": 8, "dimension": 4, "num_shared": 2, "iterations": 60, "aggregation": rule}
    return Scenario(**{**values, **changes})


CASES = [
    Case(seed, participants, dimension, shared, bad)
    for seed, (participants, dimension, shared) in enumerate(
        [(5, 4, 2), (5, 5, 5), (1, 3, 2), (2, 4, 1), (9, 6, 3)]
    )
    for bad in (0.0, 0.3, 1.0)
]


@pytest.mark.parametrize("rule", RULES)
def test_the_compiled_rule_equals_its_literal_form(rule: str) -> None:
    part, options = load_part("aggregations", rule), make_options("aggregations", rule, {}, "")
    for case in CASES:
        server = case.run(rule)
        for lane in range(LANES):
            before = case.target - case.server[:, lane]
            expected = part.combine(case.uploads(lane), before, options, case.root(lane))
            assert np.allclose(case.target - server[:, lane], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_no_number_that_is_none_reaches_the_model(rule: str) -> None:
    for case in CASES:
        assert np.isfinite(case.run(rule)).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e149])
def test_finite_uploads_of_any_size_leave_the_model_finite(rule: str, size: float) -> None:
    case = Case(3, 5, 4, 3, 0.0)
    case.sent *= size / np.abs(case.sent).max()
    assert np.isfinite(case.run(rule)).all()


@pytest.mark.parametrize("rule", RULES)
def test_if_nobody_answers_the_model_stays(rule: str) -> None:
    case = Case(4, 5, 4, 2, 1.0)
    assert np.array_equal(case.run(rule), case.server)


@pytest.mark.parametrize("rule", RULES)
def test_an_entry_that_nobody_sent_stays(rule: str) -> None:
    case = Case(5, 5, 6, 2, 0.0)
    case.entries %= 3
    case.entries[:, 1] = (case.entries[:, 0] + 1) % 3
    assert np.array_equal(case.run(rule)[3:], case.server[3:])


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_the_participants_does_not_matter(rule: str) -> None:
    rng = np.random.default_rng(0)
    for case in CASES:
        order = rng.permutation(len(case.sent))
        assert np.allclose(case.run(rule, order), case.run(rule), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "fltrust"])
def test_if_all_send_the_same_the_server_takes_it(rule: str) -> None:
    """FLTrust alone does not: it gives every update the length of the server's own step."""
    case = Case(6, 5, 4, 4, 0.0)
    case.entries[:] = np.arange(4)[None, :, None]
    case.sent[:] = case.server[None] + 0.01
    assert np.allclose(case.run(rule), case.sent[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("coordinated", [True, False])
def test_the_engine_under_attack_does_what_the_literal_form_says(rule: str, coordinated: bool) -> None:
    kind = "gaussian" if coordinated else "non-finite"
    attack = Attack(num_byzantine=3, kind=kind, probability=0.5)
    scenario = of_rule(rule, attack=attack, selection=Selection(coordinated=coordinated))
    result = simulate(scenario, trials=4, seed=3, keep_trials=True)
    literal = run_literally(scenario, seed=3, trial=2)
    for metric in METRICS:
        assert np.allclose(result.trial_curves[metric][2], getattr(literal, metric), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("rule", RULES)
def test_bits_do_not_depend_on_threads_or_on_the_other_trials(rule: str) -> None:
    scenario = of_rule(rule, attack=Attack(num_byzantine=3), selection=Selection(coordinated=False))
    one, many = (simulate(scenario, trials=18, threads=threads) for threads in (1, 3))
    alone = simulate(scenario, trials=1)
    for metric in METRICS:
        assert np.array_equal(one.steady_state[metric], many.steady_state[metric])
        assert one.steady_state[metric][0] == alone.steady_state[metric][0]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_learns(rule: str) -> None:
    result = simulate(of_rule(rule, iterations=1500, dimension=2, num_clients=10), trials=4)
    assert result.server_msd.mean < 0.02


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_survives_toml_and_back(rule: str) -> None:
    scenario = of_rule(rule)
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    assert tuple(scenario.aggregation_options) == tuple(declared_options("aggregations", rule))


@pytest.mark.parametrize(
    ("rule", "switched_off"),
    [
        ("trimmed-mean", {"trim": 0}),
        ("multi-krum", {"tolerated": 0, "selected": 8}),
        ("geometric-median", {"smoothing": 1e6, "iterations": 1}),
        ("centred-clipping", {"radius": 1e6, "iterations": 1}),
        ("norm-clipping", {"factor": 1e6}),
    ],
)
@pytest.mark.parametrize("kind", ["gaussian", "drop-out"])
def test_a_rule_whose_robustness_is_switched_off_is_the_mean(
    rule: str, switched_off: dict, kind: str
) -> None:
    attack = Attack(num_byzantine=3, kind=kind, probability=0.5)
    mean = of_rule("mean", attack=attack, selection=Selection(coordinated=False))
    other = mean.replace(aggregation=rule, aggregation_options=switched_off)
    results = [simulate(scenario, trials=4, keep_trials=True) for scenario in (mean, other)]
    assert np.allclose(*(result.trial_curves["server_msd"] for result in results), rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("algorithm", part_names("algorithms"))
def test_every_rule_serves_every_algorithm_or_is_refused_by_name(algorithm: str, rule: str) -> None:
    attack = Attack(num_byzantine=3, kind="non-finite", probability=0.5)
    scenario = of_rule(rule, algorithm=algorithm, attack=attack)
    if rule == "fltrust" and algorithm not in ("pso-fed", "online-fed"):
        # Its root data say how a model should change; these send no models.
        with pytest.raises(NotCoveredError, match=f'"fltrust" .* "{algorithm}"'):
            simulate(scenario, trials=4)
        return
    assert np.isfinite(simulate(scenario, trials=4).steady_state["server_msd"]).all()
