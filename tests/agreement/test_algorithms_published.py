"""The paper's first experiment: levels and order of the algorithms, against the values printed in its Fig. 1.

The paper's fleet is unknown. Over fleets drawn as the paper says levels differ by some tenths of a dB, so
that is the tolerance of levels; order and slopes have less excuse.
"""

from functools import cache

import pytest

from psofed import Scenario, simulate
from psofed.parts.attacks import Gaussian
from psofed.parts.registry import find_part
from psofed.results import SimulationResult

pytestmark = [pytest.mark.simulation, pytest.mark.parts, pytest.mark.slow, pytest.mark.takes(69)]

# Test MSE at the server in dB over |S_B|, read off the vector graphics of the first author's PhD thesis.
PRINTED = {
    "pso-fed": {0: -18.228, 10: -13.461, 20: -11.271},
    "online-fed": {0: -18.251, 10: -8.105, 20: -5.383},
    "signsgd": {0: -2.751, 10: -2.528, 20: -2.582},
    "cs-fed": {0: -18.386, 10: -13.080, 20: -11.010},
    "qs-fed": {0: -17.653, 10: -11.641, 20: -7.541},
}
FLEET = 0.45
# SignSGD's level hangs on the fitted b; QS-Fed's printed curve grows faster than any variant's.
TOLERANCE = {"signsgd": 1.2}
GROWTH_NOT_FOLLOWED = [("qs-fed", 20)]


@cache
def run(algorithm: str, byzantine: int, options: tuple = ()) -> SimulationResult:
    scenario = Scenario(
        num_clients=100,
        dimension=5,
        algorithm=find_part("algorithm", algorithm)(**dict(options)),
        stepsize=0.08 if algorithm == "signsgd" else 0.15,
        attack=Gaussian(num_byzantine=byzantine, probability=1.0, variance=0.25),
    )
    return simulate(scenario, trials=48, seed=1)


def decibels(algorithm: str, byzantine: int, **options: object) -> float:
    return run(algorithm, byzantine, tuple(options.items())).test_mse.decibels


POINTS = [(name, byzantine) for name in PRINTED for byzantine in (0, 10, 20)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("algorithm", "byzantine"), [p for p in POINTS if p not in GROWTH_NOT_FOLLOWED])
def test_levels_are_those_printed(algorithm: str, byzantine: int) -> None:
    estimate = run(algorithm, byzantine).test_mse
    statistical = 4 * 4.343 * estimate.standard_error / estimate.mean
    allowed = TOLERANCE.get(algorithm, FLEET) + statistical
    assert abs(estimate.decibels - PRINTED[algorithm][byzantine]) < allowed


def test_the_order_under_attack_is_the_printed_one() -> None:
    for byzantine in (10, 20):
        pso, cs, qs, online, sign = (
            decibels(name, byzantine) for name in ("pso-fed", "cs-fed", "qs-fed", "online-fed", "signsgd")
        )
        assert max(pso, cs) < qs < online < sign
        assert abs(pso - cs) < 0.3  # a tie, here as in print


def test_without_attack_online_fed_equals_pso_fed() -> None:
    assert abs(decibels("online-fed", 0) - decibels("pso-fed", 0)) < 0.3


def test_other_readings_of_signsgd_beat_pso_fed_under_attack() -> None:
    """So the paper's claim about SignSGD holds only for the fitted reading."""
    assert decibels("signsgd", 10, signs="deterministic", vote="mean") < decibels("pso-fed", 10) - 1.0
    assert decibels("signsgd", 20, signs="deterministic") < decibels("pso-fed", 20) - 0.3
    flat = [decibels("signsgd", byzantine, signs="deterministic") for byzantine in (0, 20)]
    assert abs(flat[0] - flat[1]) < 0.3


def test_one_bit_measurements_without_magnitude_beat_pso_fed_under_attack() -> None:
    """What the attack gets at in CS-Fed is the magnitude: without it the level hardly moves."""
    assert decibels("cs-fed", 20, magnitude=False) < decibels("pso-fed", 20) - 3.0
    assert decibels("cs-fed", 20, magnitude=False) - decibels("cs-fed", 0, magnitude=False) < 0.3


def test_fewer_participants_would_be_far_from_print() -> None:
    assert decibels("online-fed", 10, budget="fewer-participants") > PRINTED["online-fed"][10] + 5.0
