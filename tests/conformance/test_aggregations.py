"""Every aggregation rule, no exceptions: compiled against plain Python, on bad numbers, in the engine."""

from collections.abc import Callable

import numpy as np
import pytest

from psofed import Aggregation, NotCoveredError, Scenario, Selection, simulate
from psofed.parts.aggregations import (
    CGE,
    MDA,
    CentredClipping,
    GeometricMedian,
    MeaMed,
    MultiKrum,
    NormClipping,
    Phocas,
    TrimmedMean,
)
from psofed.parts.attacks import DropOut, Gaussian, NonFinite
from psofed.parts.plain import combine_uploads
from psofed.parts.registry import find_part, part_names

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.takes(68)]

RULES = part_names("aggregation")
LANES = 3


class Case:
    """Random uploads of several lanes, of which not all share the same entries and some are not numbers."""

    def __init__(self, seed: int, participants: int, dimension: int, shared: int, bad: float) -> None:
        rng = np.random.default_rng(seed)
        self.target, self.server = rng.normal(size=dimension), rng.normal(size=(dimension, LANES))
        chosen = [[rng.permutation(dimension)[:shared] for _ in range(LANES)] for _ in range(participants)]
        self.entries = np.moveaxis(np.array(chosen), 1, 2).astype(np.int32).copy()
        self.sent = rng.standard_t(2, size=(participants, shared, LANES))
        spoiled = rng.random(self.sent.shape) < bad
        self.sent[spoiled] = rng.choice([np.nan, np.inf, -np.inf, 1e200], size=spoiled.sum())
        self.own_step = rng.normal(size=(dimension, LANES))

    def uploads(self, lane: int) -> np.ndarray:
        out = np.full((len(self.sent), len(self.target)), np.nan)
        np.put_along_axis(out, self.entries[:, :, lane].astype(np.int64), self.sent[:, :, lane], axis=1)
        return out

    def run(self, run_rule: Callable, rule: str, order: np.ndarray | None = None) -> np.ndarray:
        rows = np.arange(len(self.sent)) if order is None else order
        return run_rule(
            find_part("aggregation", rule)(), self.entries[rows], self.sent[rows], self.server,
            target=self.target, own_step=self.own_step,
        )  # fmt: skip


def of_rule(rule: str | Aggregation, **changes: object) -> Scenario:
    values = {"num_clients": 8, "dimension": 4, "num_shared": 2, "iterations": 60, "aggregation": rule}
    return Scenario(**{**values, **changes})


CASES = [
    Case(seed, participants, dimension, shared, bad)
    for seed, (participants, dimension, shared) in enumerate([(5, 4, 2), (5, 5, 5), (1, 3, 2), (2, 4, 1), (9, 6, 3)])
    for bad in (0.0, 0.3, 1.0)
]


@pytest.mark.parametrize("rule", RULES)
def test_the_compiled_rule_equals_the_plain_one(run_rule: Callable, rule: str) -> None:
    for case in CASES:
        following = case.run(run_rule, rule)
        for lane in range(LANES):
            expected = combine_uploads(
                find_part("aggregation", rule)(), case.uploads(lane), case.server[:, lane], case.own_step[:, lane]
            )
            assert np.allclose(following[:, lane], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e149])
def test_finite_uploads_of_any_size_leave_the_model_finite(run_rule: Callable, rule: str, size: float) -> None:
    case = Case(3, 5, 4, 3, 0.0)
    case.sent *= size / np.abs(case.sent).max()
    assert np.isfinite(case.run(run_rule, rule)).all()


@pytest.mark.parametrize(
    "rule",
    [
        rule
        for rule in RULES
        if not (find_part("aggregation", rule).has_root_data or find_part("aggregation", rule)().memory_size(1, 1))
    ],
)
def test_if_all_send_the_same_the_server_takes_it(run_rule: Callable, rule: str) -> None:
    """Rules with root data or memory need not: FLTrust gives every update the length of its own step."""
    case = Case(6, 5, 4, 4, 0.0)
    case.entries[:] = np.arange(4)[None, :, None]
    case.sent[:] = case.server[None] + 0.01
    assert np.allclose(case.run(run_rule, rule), case.sent[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("coordinated", [True, False])
def test_the_engine_under_attack_does_what_the_literal_form_says(
    as_literally: Callable, rule: str, coordinated: bool
) -> None:
    attack = (Gaussian if coordinated else NonFinite)(num_byzantine=3, probability=0.5)
    as_literally(of_rule(rule, attack=attack, selection=Selection(coordinated=coordinated)), 3, 3)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_learns(rule: str) -> None:
    result = simulate(of_rule(rule, iterations=1500, dimension=2, num_clients=10), trials=4)
    assert result.server_msd.mean < 0.02


@pytest.mark.parametrize(
    "switched_off",
    [
        TrimmedMean(trim=0),
        MultiKrum(tolerated=0, selected=8),
        GeometricMedian(smoothing=1e6),
        CentredClipping(radius=1e6, iterations=1),
        CentredClipping(radius=1e6),
        NormClipping(factor=1e6),
        MeaMed(tolerated=0),
        Phocas(tolerated=0),
        MDA(tolerated=0),
        CGE(tolerated=0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", [Gaussian, DropOut])
def test_a_rule_whose_robustness_is_switched_off_is_the_mean(switched_off: Aggregation, kind: type) -> None:
    attack = kind(num_byzantine=3, probability=0.5)
    mean = of_rule("mean", attack=attack, selection=Selection(coordinated=False))
    other = mean.replace(aggregation=switched_off)
    results = [simulate(scenario, trials=4, keep_trials=True) for scenario in (mean, other)]
    assert np.allclose(*(result.trial_curves["server_msd"] for result in results), rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("algorithm", part_names("algorithm"))
def test_every_rule_serves_every_algorithm_or_is_refused_by_name(algorithm: str, rule: str) -> None:
    attack = NonFinite(num_byzantine=3, probability=0.5)
    scenario = of_rule(rule, algorithm=algorithm, attack=attack)
    part = scenario.algorithm
    if scenario.aggregation.has_root_data and not (part.holds_models or part.exchange(scenario).sends_model):
        # Root data say how a model should change; these send no models.
        with pytest.raises(NotCoveredError, match=f'"{rule}" .* "{algorithm}"'):
            simulate(scenario, trials=4)
        return
    assert np.isfinite(simulate(scenario, trials=4).steady_state["server_msd"]).all()
