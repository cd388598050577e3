"""Does it come true? A scenario simulated and predicted, metric by metric."""

from psofed.studies.comparison.agreement import TOLERANCES, Comparison, MetricComparison, compare, compare_results

__all__ = ["TOLERANCES", "Comparison", "MetricComparison", "compare", "compare_results"]
