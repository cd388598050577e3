"""What simulations found: estimates, learning curves, traffic, tracking, and the files they are kept in."""

from psofed.results.simulation import (
    EVASION_TITLES,
    METRIC_TITLES,
    Estimate,
    SimulationResult,
    estimate,
    find_unsteady,
    load_result,
)

__all__ = [
    "EVASION_TITLES",
    "METRIC_TITLES",
    "Estimate",
    "SimulationResult",
    "estimate",
    "find_unsteady",
    "load_result",
]
