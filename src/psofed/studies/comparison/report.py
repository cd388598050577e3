"""Report of a comparison: whether theory and simulation agree, metric by metric."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.charts import Chart, Scale, Series
from psofed.render.numbers import counted, listed, percent, sentence_case, significant
from psofed.results.metrics import METRIC_TITLES, label_of
from psofed.results.reports.simulation import curve_series
from psofed.scenario.describe import describe_scenario
from psofed.settings.theory import THEORY_TITLES
from psofed.theory.reports import assumptions, theory_argument, theory_series

if TYPE_CHECKING:
    from psofed.results import SimulationResult
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
        Column("standard errors", Kind.NUMBER, digits=3, minor=1),
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
        f"Difference: prediction against simulation. Allowed: {significant(found.standard_errors, 2)} "
        f"standard errors, but at least {allowed}.",
    )
    own_data = found.in_order is not None
    trials = f"{counted(result.trials, 'table')} of rows drawn at random from yours" if own_data else ""
    title = f"Mean over the last {result.tail:,} of {result.scenario.iterations:,} iterations"
    return Report(
        verdict(found),
        f"{trials or counted(result.trials, 'trial')} against the {THEORY_TITLES[found.prediction.theory]}: "
        f"{describe_scenario(result.scenario)}.",
        (Table(title if own_data else "Steady state", columns, rows, notes), *_order_table(found)),
        (() if own_data else _unsteady(result)) + assumptions(result.scenario) + _assumption_notes(found),
        _next_step(found),
        lambda: (comparison_chart(found),),
    )


def _unsteady(result: "SimulationResult") -> tuple[str, ...]:
    return tuple(
        f"The simulated {label_of(metric).title} still changes by {percent(change, 1, signed=True)} within the last "
        f"{result.tail:,} iterations, so it is not a steady state yet."
        for metric, change in result.unsteady_metrics.items()
    )


def _order_table(found: "Comparison") -> tuple[Table, ...]:
    if not found.orders:
        return ()
    columns = (
        Column(""),
        Column("in the table's order", Kind.LEVEL),
        Column("difference", Kind.PERCENT, digits=2),
        Column("deviation of one table", Kind.PERCENT, digits=2),
        Column("order"),
    )
    rows = tuple(
        (
            METRIC_TITLES[row.metric],
            row.in_order,
            row.difference,
            row.deviation,
            "matters" if row.is_clear else "chance",
        )
        for row in found.orders
    )
    note = (
        "Difference: from tables of the same rows drawn at random. Beyond what these deviate, rows depend on each "
        "other or change in time."
    )
    return (Table("Your table, row by row", columns, rows, (note,)),)


def _assumption_notes(found: "Comparison") -> tuple[str, ...]:
    if found.prediction.theory != "independence":
        return ()
    return (
        "The prediction takes inputs as independent over time; a difference beyond the allowed one is what this "
        "assumption costs.",
    )


def _all_metrics(number: int) -> str:
    return "both metrics" if number == 2 else f"all {_NUMBERS.get(number, number)} metrics"


def verdict(found: "Comparison") -> str:
    """Say in a sentence whether theory and simulation agree.

    Where a few extreme trials dominate a simulated mean (heavy tails), the trials cannot tell.
    """
    if found.in_order is not None:
        return _verdict_on_table(found)
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
    heavy = f"a few extreme trials dominate the simulated mean of {listed(undecided)}, so these trials cannot tell"
    if not settled:
        return f"Undecided: {heavy}."
    return f"Theory and simulation agree on {_NUMBERS.get(settled, settled)} of {len(titles)} metrics; {heavy}."


def _verdict_on_table(found: "Comparison") -> str:
    """Say whether the theory describes the table's clients, and whether the order of its rows matters."""
    differ = [METRIC_TITLES[row.metric] for row in found.metrics if not row.agrees]
    if differ:
        first = f"The theory differs from rows drawn at random from your table in the {listed(differ)}."
    else:
        both = _all_metrics(len(found.metrics))
        first = f"Theory and simulation agree on {both} for rows drawn at random from your table."
    changed = [
        f"{METRIC_TITLES[row.metric]} is {percent(abs(row.difference))} {'higher' if row.difference > 0 else 'lower'}"
        for row in found.orders
        if row.is_clear
    ]
    if not changed:
        return f"{first} In the table's own order, differences are no larger than chance."
    return (
        f"{first} In the table's own order the {listed(changed)}: rows depend on each other or change in time, which "
        "the theory leaves out."
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
        series.append(theory_series(curve, metric, THEORY_TITLES[theory], iterations, result.bin_width, "--"))
    title = f"{describe_scenario(result.scenario)}\n({counted(result.trials, 'trial')}, 95 % bands)"
    if found.in_order is not None:
        network = next(iter(METRIC_TITLES))
        series.append(curve_series(found.in_order, network, "network MSE, your rows in order", len(METRIC_TITLES)))
    return Chart(
        sentence_case(title),
        Scale("iteration", log=True),
        Scale("error (dB), lower is better"),
        tuple(series),
        size=(7.2, 4.6),
    )


def _next_step(found: "Comparison") -> NextStep:
    theory = theory_argument(found.prediction.theory)
    tuning = NextStep("Find the best stepsize", f"psofed.tune(scenario{theory})", "psofed tune FILE")
    if found.simulation.scenario.data.rows is not None:
        return tuning  # there are no more rows, and more trials would be on the same ones
    if found.simulation.unsteady_metrics:
        longer = 4 * found.simulation.scenario.iterations
        return NextStep(
            "Compare over more iterations",
            f"psofed.compare(scenario.replace(iterations={longer}){theory})",
            f"psofed compare FILE --set iterations={longer}",
        )
    if not found.agrees or any(row.is_open for row in found.metrics):
        trials = 4 * found.simulation.trials
        return NextStep(
            "Compare with more trials",
            f"psofed.compare(scenario, trials={trials}{theory})",
            f"psofed compare FILE --trials {trials}",
        )
    return tuning
