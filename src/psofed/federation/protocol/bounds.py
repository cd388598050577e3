"""What a node takes from a server before it allocates anything: a hostile server must not bring a node down.

The server names sizes: of the model, of the arrays that are not shared, of the synthetic fleet, the number of the
round. A few bytes can so ask for terabytes, or for a loop over 2⁶² rounds.
"""

from psofed.common.errors import PsofedError
from psofed.scenario import Scenario

MAX_ROUND = 10**9
MAX_ENTRIES = 10**8
"""Entries of a model, shared or not, that a client holds unless told otherwise: 800 MB as float64."""

READY_MADE_ENTRIES = 10**7
"""The same for the ready-made app, which fits one linear model: 80 MB."""

MAX_CONFIG = 1 << 16
"""Characters of a scenario that a node reads from a run's configuration."""

_MOST_SYNTHETIC = 10**7  # numbers that describe a synthetic fleet


def check_scenario(scenario: Scenario) -> None:
    """Raise PsofedError if a scenario from a server describes more than a node can hold."""
    clients, dimension = scenario.num_clients, scenario.dimension
    if dimension > READY_MADE_ENTRIES:
        raise PsofedError(
            f"the server's model has {dimension:,} entries; a node takes at most {READY_MADE_ENTRIES:,}"
        )
    numbers = clients * dimension * (dimension if scenario.data.input_correlation else 1)
    if numbers > _MOST_SYNTHETIC:
        raise PsofedError(
            f"the server's scenario describes {clients:,} clients by {numbers:,} numbers; a node takes at most "
            f"{_MOST_SYNTHETIC:,}"
        )
