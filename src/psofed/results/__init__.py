"""What simulations found: estimates, learning curves, traffic, tracking, and the files they are kept in."""

from psofed.results.defence import DefenceRecord
from psofed.results.simulation import (
    METRIC_TITLES,
    Estimate,
    SimulationResult,
    estimate,
    find_unsteady,
    load_result,
)

__all__ = [
    "METRIC_TITLES",
    "DefenceRecord",
    "Estimate",
    "SimulationResult",
    "estimate",
    "find_unsteady",
    "load_result",
]
