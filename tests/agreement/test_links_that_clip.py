"""The theory of dithered links is refused where the simulation clips values."""

import numpy as np
import pytest

import psofed
from psofed import Data, Links, NotCoveredError, Scenario
from psofed.attacks import ColludingGaussian, ConstantBias, Gaussian, ScaledUpdate
from psofed.channels import Noisy, Quantised
from psofed.learners import LMS, NLMS, LeakyLMS

pytestmark = [pytest.mark.theory, pytest.mark.takes(4)]

NOISY_ATTACK = Scenario(
    num_clients=20,
    dimension=5,
    attack=Gaussian(num_byzantine=6, variance=0.5),
    channel=Links(up=Quantised(bits=8, reach=1.0)),
    iterations=200,
)


def widened(scenario: Scenario) -> Scenario:
    """Return the scenario with the same steps and dither on links that reach 256 times as far."""
    links = {
        direction: tuple(
            part.replace(bits=part.bits + 8, reach=256.0 * part.reach) if isinstance(part, Quantised) else part
            for part in getattr(scenario.channel, direction)
        )
        for direction in ("up", "down")
    }
    return scenario.replace(channel=Links(**links))


def is_clipped(scenario: Scenario) -> bool:
    """Whether a simulation changes where no value could be clipped: the dither is the same."""
    runs = (psofed.simulate(x, trials=20, seed=3) for x in (scenario, widened(scenario)))
    first, second = (run.curve["server_msd"] for run in runs)
    return not np.array_equal(first, second)


def drawn(seed: int) -> Scenario:
    rng = np.random.default_rng([24, seed])
    clients, dimension = int(rng.integers(3, 9)), int(rng.integers(2, 6))
    attacks = [
        None,
        Gaussian(num_byzantine=2, variance=float(rng.choice([0.05, 0.5]))),
        ConstantBias(num_byzantine=2, bias=float(rng.choice([0.2, 1.0]))),
        ColludingGaussian(num_byzantine=2, variance=0.3),
        ScaledUpdate(num_byzantine=1, scale=2.0),
    ]
    learners = [LMS(), LeakyLMS(leakage=0.1), NLMS()]
    before = [Noisy(variance=float(rng.choice([0.01, 0.3])))] if rng.random() < 0.3 else []
    link = Quantised(bits=int(rng.integers(2, 10)), reach=float(2.0 ** rng.uniform(0.5, 4.0)))
    return Scenario(
        num_clients=clients,
        dimension=dimension,
        num_participants=int(rng.integers(1, clients + 1)),
        num_shared=int(rng.integers(1, dimension + 1)),
        stepsize=float(10 ** rng.uniform(-1.5, -0.2)),
        attack=attacks[rng.integers(len(attacks))],
        channel=Links(**{str(rng.choice(["up", "down"])): [*before, link]}),
        iterations=400,
        learner=learners[rng.integers(len(learners))],
        data=Data(noise_variance=float(10 ** rng.uniform(-2.5, -0.3))),
    )


def test_a_link_that_clips_what_attackers_send_is_refused_with_the_reach_that_would_do() -> None:
    assert is_clipped(NOISY_ATTACK)
    with pytest.raises(NotCoveredError, match=r"channel.up.reach = 1: set it to 5\.9"):
        psofed.predict(NOISY_ATTACK)
    wide = NOISY_ATTACK.replace(channel=Links(up=Quantised(bits=10, reach=6.0)))
    assert psofed.predict(wide).network_mse > 0


@pytest.mark.slow
def test_no_drawn_scenario_that_is_predicted_clips_a_value() -> None:
    predicted = 0
    for seed in range(36):
        scenario = drawn(seed)
        try:
            prediction = psofed.predict(scenario)
        except NotCoveredError:
            continue
        if prediction.is_stable:
            predicted += 1
            assert not is_clipped(scenario), seed
    assert predicted >= 10


def test_stepsizes_at_which_a_link_clips_are_refused() -> None:
    attack = Gaussian(num_byzantine=2, probability=0.2, variance=0.05)
    fleet = Scenario(num_clients=6, dimension=4, num_participants=5, num_shared=2, attack=attack)
    good, bad = (fleet.replace(channel=Links(up=Quantised(bits=8, reach=reach))) for reach in (2.5, 1.5))
    assert psofed.predict(good).at(0.1).network_mse.decibels == pytest.approx(-16.15, abs=0.005)
    questions = (
        lambda: psofed.predict(good).at(0.3).network_mse,
        lambda: psofed.predict(bad).at(0.1).network_mse,
        lambda: psofed.optimal_stepsize(bad),
    )
    for question in questions:
        with pytest.raises(NotCoveredError, match="links that clip no value"):
            question()
