"""Reports and charts of predictions, and what they add to those of other results."""

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
from psofed.render.charts import Chart, Scale, Series, log_bins
from psofed.render.numbers import counted, decibels, sentence_case, significant
from psofed.render.style import LINES
from psofed.results.metrics import METRIC_TITLES
from psofed.results.reports.simulation import byzantine_words
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_scenario
from psofed.settings.theory import THEORY_TITLES
from psofed.theory.stepsize import is_at_edge

if TYPE_CHECKING:
    from psofed.theory.prediction import Prediction

# What contributes to the network MSE, by the names of `Terms`.
TERM_TITLES = {
    "noise": "irreducible noise",
    "data": "noise absorbed by the models",
    "attack": "attack",
    "drift": "moving target",
    "targets": "clients' own targets",
}
LOWER = "lower is better"
_NO_STABLE = "No stepsize is stable: under this attack the models diverge however small the steps are."
_NOT_LINEAR = (
    "Streams or models are not linear, so the theory is an approximation: it treats features as Gaussian inputs, and "
    "what the best common weights cannot represent as independent noise; check by simulation.",
    "There is no predicted test MSE: the theory has one for linear streams only.",
)
# A stepsize this much below the largest stable one is suggested where theory has no best one.
_SAFE = 0.3
# A best stepsize is suggested where it lowers the error by more than this many dB.
_WORTH_IT = 0.1


def prediction_report(prediction: "Prediction", stepsizes: bool = True) -> Report:
    """Return the predicted steady state, what contributes to it, which stepsizes are stable, and the best one."""
    rows: list[tuple[str, float | None, float]] = []
    for metric, title in METRIC_TITLES.items():
        value = getattr(prediction, metric)
        if not math.isnan(value):
            rows.append((title, value, value))
        if metric == "network_mse":
            # What lowers the error, or adds nothing, has no level in dB.
            rows += [(f"  {name}", part if part > 0 else None, part) for name, part in _parts(prediction)]
    columns = (
        Column(""),
        Column("steady state", Kind.LEVEL, infinite="unstable"),
        Column("linear", Kind.NUMBER, digits=5, infinite="∞"),
    )
    tables, notes = [Table("Steady state", columns, tuple(rows))], assumptions(prediction.scenario)
    if stepsizes:
        tables.append(_stepsizes(prediction))
    sampling = prediction.steady_state.sampling_error
    if sampling.server > 0:
        notes = (
            "Averaged over a sample of the clients' offsets, with a standard error of "
            f"{significant(sampling.excess, 2)} in network MSE and {significant(sampling.server, 2)} in server MSD.",
            *notes,
        )
    return Report(
        _prediction_headline(prediction),
        f"{sentence_case(THEORY_TITLES[prediction.theory])}: {describe_scenario(prediction.scenario)}.",
        tuple(tables),
        notes,
        _prediction_step(prediction) if stepsizes or not prediction.is_stable else _check(prediction),
        prediction.chart,
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
    return Chart(title, Scale("iteration", log=True), Scale(f"error (dB), {LOWER}"), tuple(series))


def curve_table(prediction: "Prediction") -> Table:
    """Return the predicted learning curve at a dozen iterations."""
    curve = prediction.learning_curve()
    last = curve.network_mse.size - 1
    shown = sorted({0, last, *(int(last ** (step / 12)) for step in range(13))})
    rows = tuple((n, *(float(getattr(curve, metric)[n]) for metric in METRIC_TITLES)) for n in shown)
    columns = (Column("iteration", Kind.COUNT), *(Column(title, Kind.LEVEL) for title in METRIC_TITLES.values()))
    return Table("Learning curve", columns, rows)


def theory_argument(theory: str) -> str:
    """Return the argument that names a theory in a call, if it is not the default."""
    return "" if theory == "exact" else f', theory="{theory}"'


def assumptions(scenario: Scenario) -> tuple[str, ...]:
    """Return what a theory assumes of your own data and of streams that are not linear; nothing for linear ones."""
    if not isinstance(rows := scenario.data.rows, OwnData):
        return () if scenario.is_linear else _NOT_LINEAR
    fleet = measured_fleet(scenario)
    noise, eigenvalues = fleet.noise_variance, np.linalg.eigvalsh(fleet.covariances())
    low, high = (significant(float(end), 3) for end in (noise.min(), noise.max()))
    least, most = (significant(float(end), 3) for end in (eigenvalues.min(), eigenvalues.max()))
    return (
        *rows.notes(),
        f"From moments measured in {counted(scenario.num_clients, 'client')}: noise variance {low} to {high}, "
        f"eigenvalues of the inputs' covariances {least} to {most}.",
        "The theory uses the measured second and fourth moments of the inputs, each client's own least-squares fit as "
        "its target, and how the noise grows with the inputs. It assumes samples that are independent in time; check "
        "by simulation.",
        "There is no predicted test MSE: on a table the server is tested on the clients' next rows.",
    )


def theory_series(curve: Any, metric: str, label: str, iterations: FloatArray, width: int, line: str) -> Series:
    """Return one metric of a predicted learning curve, binned as a simulated one is."""
    values: FloatArray = getattr(curve, metric)
    edges = np.arange(0, len(values), width)
    means = np.add.reduceat(values, edges) / np.minimum(width, len(values) - edges)
    x, y = log_bins(iterations, means)
    return Series(label, x, to_decibels(y), line=line, colour="black", width=1.4)


def _prediction_headline(prediction: "Prediction") -> str:
    scenario = prediction.scenario
    if not prediction.is_stable:
        if not prediction.max_stepsize > 0:
            return _NO_STABLE
        return (
            f"Unstable: at stepsize {significant(scenario.mean_stepsize)} the error grows without bound. "
            f"The largest stable stepsize is {significant(prediction.max_stepsize)}."
        )
    level = f"{decibels(prediction.network_mse)} ({LOWER}){byzantine_words(scenario)}"
    return f"The theory predicts a network MSE of {level}."


def _parts(prediction: "Prediction") -> list[tuple[str, float]]:
    values = asdict(prediction.terms)
    always = ("noise", "data", "attack")
    return [(title, values[name]) for name, title in TERM_TITLES.items() if values[name] or name in always]


def _stepsizes(prediction: "Prediction") -> Table:
    best = prediction.optimal_stepsize
    why = "smaller is always better" if best == 0 else ""
    if prediction.theory != "paper" and is_at_edge(best, prediction.max_stepsize):
        why = "the error falls up to the largest stable one"
    limit = "largest stable (paper's bound)" if prediction.theory == "paper" else "largest stable"
    rows = (
        ("current", prediction.scenario.mean_stepsize, f"spectral radius {prediction.spectral_radius:.6f}"),
        (limit, prediction.max_stepsize, "in mean square"),
        ("largest with a convergent mean", prediction.mean_max_stepsize, "a sufficient condition"),
        ("best", best if best > 0 else None, why),
    )
    known = tuple(row for row in rows if row[1] is None or not math.isnan(row[1]))
    return Table("Stepsizes", (Column(""), Column("stepsize", Kind.NUMBER), Column("")), known)


def _prediction_step(prediction: "Prediction") -> NextStep:
    scenario = prediction.scenario
    if not prediction.max_stepsize > 0:
        return NextStep(
            "Leave the attack out",
            f"psofed.predict(scenario.replace(attack=None){theory_argument(prediction.theory)})",
            "psofed predict FILE --set attack.num_byzantine=0",
        )
    if not isinstance(scenario.stepsize, float | int):
        return _check(prediction)
    stepsize = suggested_stepsize(prediction)
    if prediction.is_stable:
        if not prediction.optimal_stepsize or stepsize == scenario.mean_stepsize:
            return _check(prediction)
        if prediction.network_mse.decibels - prediction.at(stepsize).network_mse.decibels <= _WORTH_IT:
            return _check(prediction)
    return NextStep(
        "Try a better stepsize" if prediction.is_stable else "Try a stable stepsize",
        f"psofed.predict(scenario.replace(stepsize={stepsize:g}){theory_argument(prediction.theory)})",
        f"psofed predict FILE --set stepsize={stepsize:g}",
    )


def _check(prediction: "Prediction") -> NextStep:
    call = f"psofed.compare(scenario{theory_argument(prediction.theory)})"
    return NextStep("Check it by simulation", call, "psofed compare FILE")
