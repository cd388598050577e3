"""Report of a comparison: whether theory and simulation agree, metric by metric."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.charts import Chart, Scale, Series
from psofed.render.numbers import counted, listed, percent, sentence_case, significant
from psofed.results.metrics import METRIC_TITLES
from psofed.results.reports.simulation import curve_series
from psofed.scenario.describe import describe_scenario
from psofed.theory.reports import measured_notes, theory_series

if TYPE_CHECKING:
    from psofed.studies.comparison.agreement import Comparison

_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four"}


def comparison_report(found: "Comparison") -> Report:
    """Return both steady states side by side, and the verdict."""
    result = found.simulation
    columns = (
        Column(""),
        Column("simulated", Kind.LEVEL, interval=True),
        Column("predicted", Kind.LEVEL),
        Column("difference", Kind.PERCENT, digits=2),
        Column("standard errors", Kind.NUMBER, digits=3),
        Column("verdict"),
    )
    rows = tuple(
        (
            METRIC_TITLES[row.metric],
            Measured(row.simulated, *getattr(result, row.metric).interval),
            row.predicted,
            row.difference,
            row.z_score,
            row.verdict,
        )
        for row in found.metrics
    )
    allowed = ", ".join(
        f"{percent(share)} for the {METRIC_TITLES[metric]}" for metric, share in found.tolerances.items()
    )
    notes = (
        f"Allowed difference: {significant(found.standard_errors, 2)} standard errors, but at least {allowed}.",
    )
    return Report(
        verdict(found),
        f"{counted(result.trials, 'trial')} against the {found.prediction.theory} theory: "
        f"{describe_scenario(result.scenario)}.",
        (Table("Steady state", columns, rows, notes),),
        tuple(
            f"The simulated {METRIC_TITLES[metric]} still changes by {percent(change, 1, signed=True)} within the last "
            f"{result.tail:,} iterations, so it is not a steady state yet."
            for metric, change in result.unsteady_metrics.items()
        )
        + measured_notes(result.scenario),
        _next_step(found),
        lambda: (comparison_chart(found),),
    )


def _all_metrics(number: int) -> str:
    return "both metrics" if number == 2 else f"all {_NUMBERS.get(number, number)} metrics"


def verdict(found: "Comparison") -> str:
    """Say in a sentence whether theory and simulation agree.

    Where a few trials decide a simulated mean (heavy tails), the trials cannot tell.
    """
    titles = {row.metric: METRIC_TITLES[row.metric] for row in found.metrics}
    differ = [titles[row.metric] for row in found.metrics if not row.agrees]
    if differ:
        if len(differ) == len(titles):
            return f"Theory and simulation differ in {_all_metrics(len(titles))}."
        return f"Theory and simulation differ in {listed(differ)}."
    undecided = [titles[row.metric] for row in found.metrics if row.is_open]
    settled = len(titles) - len(undecided)
    if not undecided:
        return f"Theory and simulation agree on {_all_metrics(len(titles))}."
    heavy = f"a few trials decide the simulated mean of {listed(undecided)}, so these trials cannot tell"
    if not settled:
        return f"Undecided: {heavy}."
    return (
        f"Theory and simulation agree on {_NUMBERS.get(settled, settled)} of {len(titles)} metrics; {heavy}."
    )


def comparison_chart(found: "Comparison") -> Chart:
    """Return the simulated learning curves with bands, and the predicted ones on top."""
    result, theory = found.simulation, found.prediction.theory
    curve = found.prediction.learning_curve()
    series: list[Series] = []
    for colour, (metric, title) in enumerate(METRIC_TITLES.items()):
        if np.isfinite(result.curve[metric]).any():
            series.append(curve_series(result, metric, f"{title}, simulated", colour))
    for metric in (row.metric for row in found.metrics):
        iterations = result.iterations.astype(np.float64)
        series.append(theory_series(curve, metric, f"{theory} theory", iterations, result.bin_width, "--"))
    title = f"{describe_scenario(result.scenario)}\n({counted(result.trials, 'trial')}, 95 % bands)"
    return Chart(
        sentence_case(title),
        Scale("iteration", log=True),
        Scale("error (dB), lower is better"),
        tuple(series),
        size=(7.2, 4.6),
    )


def _next_step(found: "Comparison") -> NextStep:
    tuning = NextStep("Find the best stepsize", "psofed.tune(scenario)", "psofed tune FILE")
    if found.simulation.scenario.data.rows is not None:
        return tuning  # there are no more rows, and more trials would be on the same ones
    if found.simulation.unsteady_metrics:
        longer = 4 * found.simulation.scenario.iterations
        return NextStep(
            "Compare over more iterations",
            f"psofed.compare(scenario.replace(iterations={longer}))",
            f"psofed compare FILE --set iterations={longer}",
        )
    if not found.agrees or any(row.is_open for row in found.metrics):
        trials = 4 * found.simulation.trials
        return NextStep(
            "Compare with more trials",
            f"psofed.compare(scenario, trials={trials})",
            f"psofed compare FILE --trials {trials}",
        )
    return tuning
