"""Report and chart of a tuning."""

import math
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.render import Column, Kind, NextStep, Report, Table
from psofed.render.charts import Chart, Scale, Series
from psofed.render.numbers import count, counted, significant
from psofed.render.style import LINES
from psofed.results.metrics import LABELS
from psofed.theory.metrics import METRICS
from psofed.theory.reports import assumptions

if TYPE_CHECKING:
    from psofed.theory.tuning import Tuning


def tuning_report(tuning: "Tuning") -> Report:
    """Return the best stepsize for each number of shared parameters, and which of them to use."""
    best, points, minimised = tuning.recommended, tuning.points, METRICS[tuning.metric]
    metrics = [
        metric
        for metric in dict.fromkeys(("network_mse", "test_mse", "server_msd", minimised))
        if not all(math.isnan(getattr(point, metric)) for point in points)
    ]
    columns = {
        "num_shared": Column("M", Kind.COUNT),
        "num_participants": Column("participants", Kind.COUNT),
        "stepsize": Column("best stepsize", Kind.NUMBER),
        "max_stepsize": Column("largest stable", Kind.NUMBER),
        **{metric: Column(LABELS[metric].title, Kind.LEVEL, minor=int(metric != minimised)) for metric in metrics},
        "convergence_iterations": Column("iterations to settle", Kind.COUNT),
        "numbers_per_iteration": Column("values sent per iteration", Kind.COUNT),
    }
    design = {"num_shared": best.num_shared, "stepsize": f"{best.stepsize:.4g}"}
    among = ""
    if tuning.budget is None:
        del columns["num_participants"]
    else:
        design["num_participants"] = best.num_participants
        among = f" among {counted(best.num_participants, 'participant')}"
    rows = tuple(tuple(getattr(point, name) for name in columns) for point in points)
    horizon = "" if tuning.horizon is None else f"mean over {count(tuning.horizon)} iterations of the "
    aim = f"the {horizon or 'steady-state '}{LABELS[minimised].title}"
    notes = [
        f"M: shared parameters. Best stepsize: the one with the lowest error ({aim}).",
        "Iterations to settle: until the network MSE stays within 1 dB of its steady state.",
        "Values sent: by the server and all participants together, in both directions.",
    ]
    if any(point.convergence_iterations is None for point in points):
        longest = count(100_000 if tuning.horizon is None else tuning.horizon)
        notes.append(f"An empty cell: more than {longest} iterations, or a fleet too large to compute it for.")
    at_edge = ", ".join(str(point.num_shared) for point in points if point.at_edge)
    if at_edge:
        notes.append(
            f"M = {at_edge}: the error falls up to the largest stable stepsize, so the best one is 3 % below that."
        )
    title, marked = "Best stepsize for each number of shared parameters", frozenset({points.index(best)})
    changes = ", ".join(f"{name}={value}" for name, value in design.items())
    flags = "".join(f" --set {name}={value}" for name, value in design.items())
    return Report(
        f"Share {counted(best.num_shared, 'parameter')}{among} with stepsize {significant(best.stepsize)}: "
        f"{tuning.reason}",
        tables=(Table(title, tuple(columns.values()), rows, tuple(notes), marked),),
        notes=assumptions(tuning.scenario),
        next_step=NextStep(
            "Simulate it", f"psofed.simulate(scenario.replace({changes}))", f"psofed simulate FILE{flags}"
        ),
        chart=tuning.chart,
    )


def tuning_chart(tuning: "Tuning") -> Chart:
    """Return the predicted error over the stepsize for each number of shared parameters, best points marked."""
    stepsizes, errors = tuning.curves()
    series = []
    for index, point in enumerate(tuning.points):
        is_best = point is tuning.recommended
        name = f"M = {point.num_shared}" + (", recommended" if is_best else "")
        curve, best = to_decibels(errors[point.num_shared]), to_decibels(np.array([point.error(tuning.metric)]))
        series.append(Series(name, stepsizes, curve, line=LINES[index % len(LINES)], colour=index, width=1.4))
        marker, size = ("*", 11) if is_best else ("o", 5)
        place = np.array([point.stepsize])
        series.append(Series("", place, best, line="", marker=marker, colour=index, size=size))
    when = "steady state" if tuning.horizon is None else f"mean over {count(tuning.horizon)} iterations"
    return Chart(
        "Dots: best stepsize for each M. Star: recommended.",
        Scale("stepsize μ", log=True),
        Scale(f"{LABELS[METRICS[tuning.metric]].title}, {when} (dB)"),
        tuple(series),
    )
