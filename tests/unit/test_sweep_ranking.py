"""The headline of a sweep: designs are ranked, conditions are not."""

import math

import numpy as np
import pytest

from psofed import Scenario, sweep
from psofed.attacks import Gaussian
from psofed.results.metrics import label_of
from psofed.studies.sweeps import Axis
from psofed.studies.sweeps.report import Ranking, rank

pytestmark = pytest.mark.studies

RULES = Axis(("aggregation",), (("mean",), ("median",)))
ATTACKS = Axis(("attack.variance",), ((0.0,), (0.5,), (2.0,)))
NOISE = Axis(("data.noise_variance",), ((0.01,), (0.1,)))
DIVERGED = math.inf


NETWORK = label_of("network_mse")


def headline(conditions, designs, levels) -> str:
    table = np.array(levels, dtype=float)
    return Ranking(conditions, designs, np.arange(table.size).reshape(table.shape), table, NETWORK).headline()


def test_a_sweep_does_not_crown_its_weakest_attack() -> None:
    base = Scenario(num_clients=8, dimension=3, iterations=60, attack=Gaussian(num_byzantine=2))
    result = sweep(base, {"num_shared": [1, 3], "attack.variance": [0.0, 1.0]}, trials=4)
    ranking = rank(result)
    assert [axis.name for axis in ranking.conditions] == ["attack.variance"]
    assert ranking.places.tolist() == [[0, 2], [1, 3]]  # the last axis of the sweep varies fastest
    assert len(ranking.best) == 2
    assert not result.report().headline.startswith("Of 4 designs")


@pytest.mark.parametrize(
    ("conditions", "designs", "levels", "text"),
    [
        (
            [],
            [RULES],
            [[0.1, 0.01]],
            "Of 2 designs, aggregation = median has the lowest network MSE: −20.00 dB (lower is better).",
        ),
        (
            [ATTACKS],
            [],
            [[0.01], [0.1], [1.0]],
            "The network MSE ranges from −20.00 dB for attack.variance = 0 to 0.00 dB for attack.variance = 2 "
            "(lower is better).",
        ),
        (
            [ATTACKS],
            [],
            [[0.01], [DIVERGED], [DIVERGED]],
            "The network MSE is −20.00 dB for attack.variance = 0 (lower is better). "
            "It diverges for attack.variance = 0.5 and attack.variance = 2.",
        ),
        (
            [ATTACKS],
            [RULES],
            [[0.01, 0.02], [0.1, 0.02], [1.0, 0.1]],
            "The best design depends on attack.variance: aggregation = mean for attack.variance = 0 (−20.00 dB); "
            "aggregation = median for attack.variance = 0.5 (−16.99 dB) and 2 (−10.00 dB). In the worst case, "
            "aggregation = median is best: network MSE −10.00 dB, for attack.variance = 2 (lower is better).",
        ),
        (
            [ATTACKS],
            [RULES],
            [[0.1, 0.01], [0.1, 0.1], [DIVERGED, DIVERGED]],
            "Of 2 designs, aggregation = median has the lowest network MSE for both stable values of attack.variance: "
            "−20.00 to −10.00 dB (lower is better). Every design diverges for attack.variance = 2.",
        ),
        (
            [ATTACKS],
            [RULES],
            [[0.01, 0.0101], [0.1, 0.02], [1.0, 0.1]],
            "Of 2 designs, aggregation = median has the lowest network MSE, or one within 0.1 dB of it, for all 3 "
            "values of attack.variance: −19.96 to −10.00 dB (lower is better).",
        ),
        (
            [ATTACKS],
            [RULES],
            [[DIVERGED, 0.01], [0.01, DIVERGED], [0.1, 0.01]],
            "The best design depends on attack.variance: aggregation = median for attack.variance = 0 (−20.00 dB) "
            "and 2 (−20.00 dB); aggregation = mean for attack.variance = 0.5 (−20.00 dB). "
            "Every design diverges for at least one of them.",
        ),
        (
            [ATTACKS, NOISE],
            [RULES],
            [[0.01, 0.02]] * 5 + [[0.1, 0.02]],
            "No design is best for all 6 conditions. In the worst case, aggregation = median is best: network MSE "
            "−16.99 dB, for attack.variance = 0, data.noise_variance = 0.01 (lower is better).",
        ),
        ([ATTACKS], [RULES], [[DIVERGED, DIVERGED]] * 3, "All 6 points diverged."),
    ],
)
def test_headline(conditions, designs, levels, text) -> None:
    assert headline(conditions, designs, levels) == text
