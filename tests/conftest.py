"""What all tests share."""

import pytest

from psofed import Attack, Scenario


@pytest.fixture
def small_scenario() -> Scenario:
    """A scenario that takes milliseconds and leaves no part out."""
    return Scenario(
        num_clients=7,
        dimension=4,
        num_participants=3,
        num_shared=2,
        iterations=60,
        attack=Attack(num_byzantine=3, probability=0.5),
    )
