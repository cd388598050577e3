"""What a reader of a simulation should know: sentences, for the terminal, notebooks and summaries."""

from typing import TYPE_CHECKING

from psofed.results.metrics import METRIC_TITLES

if TYPE_CHECKING:
    from psofed.results.simulation import SimulationResult


def make_remarks(result: "SimulationResult") -> list[str]:
    """Return sentences on divergence, heavy tails, a steady state not reached, and notes."""
    lines = []
    diverged = result.diverged_trials
    if diverged.size:
        times = result.diverged_at[diverged]
        lines.append(
            f"{diverged.size} of {result.trials} trials diverged (trial {diverged[times.argmin()]} first, "
            f"at iteration {times.min()}): the stepsize {result.scenario.stepsize:g} is too large for this fleet"
            + (" under this attack." if result.scenario.num_byzantine else ".")
        )
    heavy = [title for metric, title in METRIC_TITLES.items() if getattr(result, metric).is_heavy_tailed]
    if heavy:
        lines.append(
            f"a few trials decide the mean of {', '.join(heavy)}: another seed may give quite another mean, so the "
            "median over trials is shown, with an interval that holds for heavy tails."
        )
    remedy = (
        "the data are not stationary"
        if "data" in result.details
        else "no steady state yet, give more iterations"
    )
    for metric, change in result.unsteady_metrics.items():
        lines.append(f"the {METRIC_TITLES[metric]} still changes by {change:+.1%} within the tail: {remedy}.")
    return [*lines, *(f"{note}." for note in result.notes)]
