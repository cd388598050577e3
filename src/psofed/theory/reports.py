"""Reports and charts of predictions: steady states, stepsizes, tuning, limits and recovery."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.numbers import to_decibels
from psofed.common.types import FloatArray
from psofed.data.own_data import OwnData
from psofed.fleet.measured import measured_fleet
from psofed.render import Column, Kind, NextStep, Report, Table
from psofed.render.charts import Chart, Scale, Series, Span, log_bins
from psofed.render.numbers import count, counted, decibels, sentence_case, significant
from psofed.render.style import LINES, MARKERS
from psofed.results.metrics import METRIC_TITLES
from psofed.results.reports.simulation import byzantine_words
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_scenario
from psofed.settings.theory import THEORY_TITLES
from psofed.theory.metrics import METRICS

if TYPE_CHECKING:
    from psofed.theory.limits import AttackLimits
    from psofed.theory.prediction import Prediction
    from psofed.theory.recovery import Recovery
    from psofed.theory.stepsize_curve import StepsizeCurve
    from psofed.theory.tuning import Tuning

# What contributes to the network MSE, by the names of `Terms`.
TERM_TITLES = {
    "noise": "irreducible noise",
    "data": "noise absorbed by the models",
    "attack": "attack",
    "drift": "moving target",
    "targets": "clients' own targets",
}
_LOWER = "lower is better"
_CHECK = NextStep("Check it by simulation", "psofed.compare(scenario)", "psofed compare FILE")
_NO_STABLE = "No stepsize is stable: under this attack the models diverge however small the steps are."
# A stepsize this much below the largest stable one is suggested where theory has no best one.
_SAFE = 0.3
# A best stepsize is suggested where it lowers the error by more than this many dB.
_WORTH_IT = 0.1


def prediction_report(prediction: "Prediction", stepsizes: bool = True) -> Report:
    """Return the predicted steady state, what contributes to it, which stepsizes are stable, and the best one."""
    scenario = prediction.scenario
    notes = []
    try:
        evasion = prediction.evasion
    except NotCoveredError as error:
        evasion = None
        notes.append(f"{error}.")
    values = {title: getattr(prediction, metric) for metric, title in METRIC_TITLES.items()}
    rows: list[tuple[str, float | None, float]] = []
    for title, value in values.items():
        if not math.isnan(value):
            rows.append((title, value, value))
        if title == METRIC_TITLES["network_mse"]:
            rows += [(f"  {name}", _level(part), part) for name, part in _parts(prediction)]
    if evasion is not None:
        rows += [
            ("test MSE with moved inputs, at least", evasion.lower, evasion.lower),
            ("test MSE with moved inputs, at most", evasion.upper, evasion.upper),
        ]
    columns = (
        Column(""),
        Column("steady state", Kind.LEVEL, infinite="unstable"),
        Column("linear", Kind.NUMBER, digits=5, infinite="∞"),
    )
    table = Table("Steady state", columns, tuple(rows))
    if prediction.is_stable:
        sampling = prediction.steady_state.sampling_error
        if sampling.server > 0:
            notes.append(
                "Averaged over a sample of the clients' offsets, with a standard error of "
                f"{significant(sampling.excess, 2)} in network MSE and {significant(sampling.server, 2)} in server MSD."
            )
    return Report(
        _prediction_headline(prediction),
        f"{sentence_case(THEORY_TITLES[prediction.theory])}: {describe_scenario(scenario)}.",
        (table, _stepsizes(prediction)) if stepsizes else (table,),
        (*notes, *measured_notes(scenario)),
        _prediction_step(prediction) if stepsizes or not prediction.is_stable else _CHECK,
        lambda: (prediction_chart(prediction),),
    )


def suggested_stepsize(prediction: "Prediction") -> float:
    """Return a stepsize to use instead: the best one where there is one, else one well below the largest stable one.

    Two digits, rounded down; 0 where no stepsize is stable.
    """
    value = prediction.optimal_stepsize or _SAFE * prediction.max_stepsize
    if not value > 0:
        return 0.0
    digits = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / digits) * digits:.2g}")


def with_remedy(report: Report, scenario: Scenario) -> Report:
    """Add to the report of a diverged run which stepsizes are stable and which to try, where theory covers it.

    Examples
    --------
    >>> with_remedy(Report("All trials diverged."), Scenario(num_clients=10, dimension=3, stepsize=2.0)).notes
    ('Stepsize 2 exceeds the largest stable stepsize, 0.4208.',)
    """
    from psofed.theory.prediction import Prediction

    try:
        prediction = Prediction(scenario)
        limit, stepsize = prediction.max_stepsize, suggested_stepsize(prediction)
    except NotCoveredError:
        return report
    if not stepsize:
        return report.adding(_NO_STABLE)
    now = significant(scenario.mean_stepsize)
    note = (
        f"Stepsize {now} exceeds the largest stable stepsize, {significant(limit)}."
        if scenario.mean_stepsize >= limit
        else f"In mean square stepsize {now} is stable (the largest stable one is {significant(limit)}), but "
        "some trials leave the stable range."
    )
    step = NextStep(
        "Try a stable stepsize",
        f"psofed.simulate(scenario.replace(stepsize={stepsize:g}))",
        f"psofed simulate FILE --set stepsize={stepsize:g}",
    )
    return report.adding(note, next_step=step)


def prediction_chart(prediction: "Prediction") -> Chart:
    """Return the predicted learning curve of every metric."""
    curve, series = prediction.learning_curve(), []
    for index, (metric, title) in enumerate(METRIC_TITLES.items()):
        values, steady = getattr(curve, metric), getattr(prediction, metric)
        if not np.isnan(values).all():
            level = decibels(steady) if math.isfinite(steady) else "unstable"
            x, y = np.arange(1.0, values.size + 1), to_decibels(values)
            series.append(Series(f"{title}, steady state {level}", x, y, line=LINES[index], colour=index))
    title = f"{sentence_case(THEORY_TITLES[prediction.theory])}: {describe_scenario(prediction.scenario)}"
    return Chart(title, Scale("iteration", log=True), Scale(f"error (dB), {_LOWER}"), tuple(series))


def curve_table(prediction: "Prediction") -> Table:
    """Return the predicted learning curve at a dozen iterations."""
    curve = prediction.learning_curve()
    last = curve.network_mse.size - 1
    shown = sorted({0, last, *(int(last ** (step / 12)) for step in range(13))})
    rows = tuple((n, *(float(getattr(curve, metric)[n]) for metric in METRIC_TITLES)) for n in shown)
    columns = (
        Column("iteration", Kind.COUNT),
        *(Column(title, Kind.LEVEL) for title in METRIC_TITLES.values()),
    )
    return Table("Learning curve", columns, rows)


def measured_notes(scenario: Scenario) -> tuple[str, ...]:
    """Return what a theory takes from your own data, and what it assumes; nothing for drawn streams."""
    if not isinstance(scenario.data.rows, OwnData):
        return ()
    fleet = measured_fleet(scenario)
    noise, eigenvalues = fleet.noise_variance, np.linalg.eigvalsh(fleet.covariances())
    low, high = (significant(float(end), 3) for end in (noise.min(), noise.max()))
    least, most = (significant(float(end), 3) for end in (eigenvalues.min(), eigenvalues.max()))
    return (
        f"From moments measured in {counted(scenario.num_clients, 'client')}: noise variance {low} to {high}, "
        f"eigenvalues of the inputs' covariances {least} to {most}.",
        "The theory uses the measured second and fourth moments of the inputs, and how the noise grows with them. It "
        "assumes samples that are independent in time and one model that is best for all clients; check by simulation.",
        "There is no predicted test MSE: on a table the server is tested on the clients' next rows.",
    )


def theory_series(
    curve: Any, metric: str, label: str, iterations: FloatArray, width: int, line: str
) -> Series:
    """Return one metric of a predicted learning curve, binned as a simulated one is."""
    values: FloatArray = getattr(curve, metric)
    edges = np.arange(0, len(values), width)
    means = np.add.reduceat(values, edges) / np.minimum(width, len(values) - edges)
    x, y = log_bins(iterations, means)
    return Series(label, x, to_decibels(y), line=line, colour="black", width=1.4)


def stepsizes_report(curve: "StepsizeCurve") -> Report:
    """Return the steady state over the stepsizes, and the best of them."""
    values = (curve.stepsize, *(getattr(curve, metric) for metric in METRIC_TITLES))
    rows = tuple(zip(*(column.tolist() for column in values), strict=True))
    columns = (
        Column("stepsize", Kind.NUMBER),
        *(Column(title, Kind.LEVEL, infinite="unstable") for title in METRIC_TITLES.values()),
    )
    stable, total = int(curve.is_stable.sum()), curve.stepsize.size
    if not stable:
        headline = "None of the stepsizes is stable." if total else "No stepsizes were given."
        return Report(headline, "", (Table("", columns, rows),), draw=lambda: (stepsizes_chart(curve),))
    best = int(np.argmin(curve.network_mse))
    return Report(
        f"Stepsize {significant(curve.stepsize[best])} gives the lowest network MSE, "
        f"{decibels(float(curve.network_mse[best]))}; {stable} of {counted(total, 'stepsize')} "
        f"{'is' if stable == 1 else 'are'} stable.",
        f"{sentence_case(THEORY_TITLES[curve.theory])}: {describe_scenario(curve.scenario)}.",
        (Table("Steady state by stepsize", columns, rows, marked=frozenset({best})),),
        (),
        NextStep("Let the theory choose", "psofed.tune(curve.scenario)", "psofed tune FILE"),
        lambda: (stepsizes_chart(curve),),
    )


def stepsizes_chart(curve: "StepsizeCurve") -> Chart:
    """Return every metric's predicted steady state over the stepsize; what is unstable is shaded."""
    order = np.argsort(curve.stepsize)
    x = curve.stepsize[order]
    series = tuple(
        Series(
            title, x, to_decibels(getattr(curve, metric)[order]), line=LINES[index], marker=MARKERS[index],
            colour=index, size=3.5,
        )
        for index, (metric, title) in enumerate(METRIC_TITLES.items())
    )  # fmt: skip
    stable = curve.is_stable[order]
    start = float(x[stable][-1]) if stable.any() else float(x[0])
    spans = () if stable.all() else (Span(start, float(x[-1]), "x", "unstable"),)
    return Chart("", Scale("stepsize μ", log=True), Scale(f"steady state (dB), {_LOWER}"), series, spans)


def tuning_report(tuning: "Tuning") -> Report:
    """Return the best stepsize for each number of shared parameters, and which of them to use."""
    best = tuning.recommended
    what = METRIC_TITLES[METRICS[tuning.metric]]
    metrics = [
        metric
        for metric in ("network_mse", "test_mse", "server_msd")
        if not all(math.isnan(getattr(point, metric)) for point in tuning.points)
    ]
    columns = (
        Column("M", Kind.COUNT),
        Column("best stepsize", Kind.NUMBER),
        Column("largest stable", Kind.NUMBER),
        *(Column(METRIC_TITLES[metric], Kind.LEVEL) for metric in metrics),
        Column("iterations to settle", Kind.COUNT),
        Column("values sent per iteration", Kind.COUNT),
    )
    rows = tuple(
        (
            p.num_shared, p.stepsize, p.max_stepsize, *(getattr(p, metric) for metric in metrics),
            p.convergence_iterations, p.numbers_per_iteration,
        )
        for p in tuning.points
    )  # fmt: skip
    aim = (
        "the steady-state "
        if tuning.horizon is None
        else f"the mean over {count(tuning.horizon)} iterations of the "
    ) + what
    notes = [
        f"M: shared parameters. Best stepsize: with the lowest error ({aim}).",
        "Iterations to settle: until the network MSE stays within 1 dB of its steady state.",
    ]
    if any(point.convergence_iterations is None for point in tuning.points):
        notes.append("An empty cell: more than 100,000 iterations, or a fleet too large to compute it for.")
    marked = frozenset({tuning.points.index(best)})
    return Report(
        f"Share {counted(best.num_shared, 'parameter')} with stepsize {significant(best.stepsize)}: {tuning.reason}",
        "",
        (Table("Best stepsize for each number of shared parameters", columns, rows, tuple(notes), marked),),
        measured_notes(tuning.scenario),
        NextStep(
            "Simulate it",
            f"psofed.simulate(scenario.replace(num_shared={best.num_shared}, stepsize={best.stepsize:.4g}))",
            f"psofed simulate FILE --set num_shared={best.num_shared} --set stepsize={best.stepsize:.4g}",
        ),
        lambda: (tuning_chart(tuning),),
    )


def tuning_chart(tuning: "Tuning") -> Chart:
    """Return the predicted error over the stepsize for each number of shared parameters, best points marked."""
    from psofed.theory.tuning import metric_of

    stepsizes, errors = tuning.curves()
    series = []
    for index, point in enumerate(tuning.points):
        is_best = point is tuning.recommended
        line = LINES[index % len(LINES)]
        name = f"M = {point.num_shared}" + (", recommended" if is_best else "")
        curve, best = (
            to_decibels(errors[point.num_shared]),
            to_decibels(np.array([metric_of(point, tuning.metric)])),
        )
        series.append(Series(name, stepsizes, curve, line=line, colour=index, width=1.4))
        series.append(
            Series(
                "", np.array([point.stepsize]), best, line="", marker="*" if is_best else "o", colour=index,
                size=11 if is_best else 5,
            )
        )  # fmt: skip
    when = "steady state" if tuning.horizon is None else f"mean over {count(tuning.horizon)} iterations"
    return Chart(
        "Dots: best stepsize for each M. Star: recommended.",
        Scale("stepsize μ", log=True),
        Scale(f"{METRIC_TITLES[METRICS[tuning.metric]]}, {when} (dB)"),
        tuple(series),
    )


def limits_report(limits: "AttackLimits") -> Report:
    """Return how many Byzantine clients, and how large a scale, the fleet tolerates."""
    scenario, most = limits.scenario, limits.num_byzantine
    clients = scenario.num_clients
    if most is None:
        headline = f"The fleet stays stable even if all {count(clients)} clients are Byzantine."
    elif most < 0:
        headline = (
            f"The fleet is unstable at stepsize {significant(scenario.mean_stepsize)} even without an attack."
        )
    else:
        headline = f"The fleet stays stable with up to {count(most)} of {count(clients)} clients Byzantine."
    if limits.scale is not None:
        headline += f" The largest stable scale of the attack is {significant(limits.scale)}."
    return Report(headline, describe_scenario(scenario) + ".")


def recovery_report(recovery: "Recovery") -> Report:
    """Return how soon the errors recover once Byzantine clients are excluded."""
    within = 0.1
    rows = []
    for metric in ("network_mse", "server_msd"):
        start, end = recovery.ends(metric)
        rows.append((METRIC_TITLES[metric], start, end, recovery.iterations(within, metric)))
    columns = (
        Column(""),
        Column("before", Kind.LEVEL),
        Column("recovered", Kind.LEVEL),
        Column("iterations", Kind.COUNT, infinite="more than computed"),
    )
    needed = recovery.iterations(within)
    headline = (
        f"The network MSE is within {within} dB of its recovered level {counted(int(needed), 'iteration')} after the "
        "exclusion."
        if math.isfinite(needed)
        else f"The network MSE has not recovered {count(recovery.network_mse.size)} iterations after the exclusion."
    )
    table = Table(
        "Recovery after the exclusion", columns, tuple(rows), (f"Iterations: until within {within} dB.",)
    )
    return Report(headline, "", (table,), draw=lambda: (recovery_chart(recovery),))


def recovery_chart(recovery: "Recovery") -> Chart:
    """Return both errors from the exclusion on."""
    series = []
    for index, metric in enumerate(("network_mse", "server_msd")):
        values = getattr(recovery, metric)
        x = np.arange(float(values.size))
        series.append(Series(METRIC_TITLES[metric], x, to_decibels(values), line=LINES[index], colour=index))
    return Chart("", Scale("iterations after the exclusion"), Scale(f"error (dB), {_LOWER}"), tuple(series))


def _prediction_headline(prediction: "Prediction") -> str:
    scenario = prediction.scenario
    if not prediction.is_stable:
        if not prediction.max_stepsize > 0:
            return _NO_STABLE
        return (
            f"Unstable: at stepsize {significant(scenario.mean_stepsize)} the error grows without bound. "
            f"The largest stable stepsize is {significant(prediction.max_stepsize)}."
        )
    level = f"{decibels(prediction.network_mse)} ({_LOWER}){byzantine_words(scenario)}"
    return f"The theory predicts a network MSE of {level}."


def _parts(prediction: "Prediction") -> list[tuple[str, float]]:
    return [
        (TERM_TITLES[name], value)
        for name, value in sorted(
            asdict(prediction.terms).items(), key=lambda item: list(TERM_TITLES).index(item[0])
        )
        if value or name in ("noise", "data", "attack")
    ]


def _level(value: float) -> float | None:
    # What lowers the error, or adds nothing, has no level in dB.
    return value if value > 0 else None


def _stepsizes(prediction: "Prediction") -> Table:
    best = prediction.optimal_stepsize
    limit = "largest stable (paper's bound)" if prediction.theory == "paper" else "largest stable"
    rows = (
        ("current", prediction.scenario.mean_stepsize, f"spectral radius {prediction.spectral_radius:.6f}"),
        (limit, prediction.max_stepsize, "in mean square"),
        ("largest with a convergent mean", prediction.mean_max_stepsize, "a sufficient condition"),
        ("best", best if best > 0 else None, "smaller is always better" if best == 0 else ""),
    )
    known = tuple(row for row in rows if row[1] is None or not math.isnan(row[1]))
    return Table("Stepsizes", (Column(""), Column("stepsize", Kind.NUMBER), Column("")), known)


def _prediction_step(prediction: "Prediction") -> NextStep:
    if not prediction.max_stepsize > 0:
        call = "psofed.attack_limits(scenario)"
        return NextStep("Find how many Byzantine clients the fleet tolerates", call)

    scenario = prediction.scenario
    if not isinstance(scenario.stepsize, float | int):
        return _CHECK
    stepsize = suggested_stepsize(prediction)
    change = NextStep(
        "Try a better stepsize" if prediction.is_stable else "Try a stable stepsize",
        f"psofed.predict(scenario.replace(stepsize={stepsize:g}))",
        f"psofed predict FILE --set stepsize={stepsize:g}",
    )
    if not prediction.is_stable:
        return change
    if prediction.optimal_stepsize and stepsize != scenario.mean_stepsize:
        better = prediction.at(stepsize)
        if to_decibels(prediction.network_mse) - to_decibels(better.network_mse) > _WORTH_IT:
            return change
    return _CHECK
