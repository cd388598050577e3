"""Results of simulations: estimates, differences, curves, traffic, tracking, and the files they are kept in."""

from psofed.results.defence import DefenceRecord
from psofed.results.differences import MetricDifference
from psofed.results.estimates import Estimate, estimate, find_unsteady
from psofed.results.metrics import METRIC_TITLES
from psofed.results.reports.difference import Difference, difference
from psofed.results.simulation import SimulationResult

__all__ = [
    "METRIC_TITLES",
    "DefenceRecord",
    "Difference",
    "Estimate",
    "MetricDifference",
    "SimulationResult",
    "difference",
    "estimate",
    "find_unsteady",
]
