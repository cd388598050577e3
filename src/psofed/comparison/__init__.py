"""Does it come true? A scenario simulated and predicted, metric by metric."""

from psofed.comparison.agreement import (
    STANDARD_ERRORS,
    TOLERANCES,
    Comparison,
    MetricComparison,
    compare,
    compare_results,
)

__all__ = ["STANDARD_ERRORS", "TOLERANCES", "Comparison", "MetricComparison", "compare", "compare_results"]
