"""The engine agrees with a simulator written from the definitions of an iteration alone."""

import sys
from pathlib import Path

import pytest

from psofed import Scenario, availabilities, channels, delays, learners
from psofed.scenario.tables import Links

sys.path.insert(0, str(Path(__file__).parent))
from iteration_by_hand import deviations, draw_system

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.takes(32)]

SMALL = Scenario(num_clients=4, dimension=3, num_shared=2, num_participants=3, iterations=30)
CORNERS = {
    "fewer available than asked, a delay as long as the run": SMALL.replace(
        availability=availabilities.Bernoulli(probability=0.2),
        delay=delays.Geometric(ratio=0.8, longest=29, weight=0.5, grouping="by-delay"),
    ),
    "the median of late updates, unknown availability": SMALL.replace(
        num_shared=3,
        aggregation="median",
        availability=availabilities.Bernoulli(probability=0.6, server_knows=False),
        delay=delays.Geometric(ratio=0.5, longest=3, weight=0.5),
    ),
    "values beyond the reach, no regularisation": SMALL.replace(
        learner=learners.NLMS(regularisation=0.0),
        channel=Links(
            up=(channels.Quantised(bits=2, reach=0.2), channels.Private(clip=0.1, multiplier=0.3)),
            down=(channels.Quantised(bits=1, reach=0.3, rounding="stochastic"), channels.Lossy(probability=0.5)),
        ),
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_corner_cases_agree_with_the_definitions(name: str) -> None:
    assert max(abs(z) for z in deviations(CORNERS[name], 2000, 1).values()) < 4


@pytest.mark.parametrize("seed", [11, 24, 31])
def test_random_systems_agree_with_the_definitions(seed: int) -> None:
    assert max(abs(z) for z in deviations(draw_system(seed), 1500, seed).values()) < 4


@pytest.mark.parametrize(
    "changes",
    [
        {"availability": availabilities.Bernoulli(probability=0.0)},
        {"availability": availabilities.Bernoulli(probability=0.0, server_knows=False)},
        {"channel": Links(up=channels.Lossy(probability=1.0))},
        {"delay": delays.Fixed(iterations=2, weight=0.0)},
    ],
)
def test_where_nothing_arrives_the_server_does_not_move(changes: dict[str, object]) -> None:
    scenario = SMALL.replace(**changes)
    found = deviations(scenario, 300, 2)
    assert found["server_msd, late"] == 0.0
    assert abs(found["network_mse, late"]) < 4
