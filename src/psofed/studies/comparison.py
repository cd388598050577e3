"""Does it come true? A scenario simulated and predicted, metric by metric."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.numbers import json_object
from psofed.common.settings import call_with, takes
from psofed.render import Column, Kind, Measured, NextStep, Report, Reported, Table
from psofed.render.charts import Chart, Scale
from psofed.render.numbers import counted, listed, percent, sentence_case, significant
from psofed.results import SimulationResult
from psofed.results.estimates import students_factor
from psofed.results.metrics import METRIC_TITLES, label_of
from psofed.results.reports.simulation import curve_series
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_scenario
from psofed.scenario.file import as_scenario
from psofed.settings.simulation import SimulationSettings
from psofed.settings.theory import THEORY_TITLES, ComparisonSettings
from psofed.simulation.monte_carlo import run_trials, simulate
from psofed.theory.prediction import Prediction, predict
from psofed.theory.reports import assumptions, theory_argument, theory_series

if TYPE_CHECKING:
    import pandas

# Agreement: within this ratio, or as likely as 3.5 standard errors of a normal variate, whichever is more.
TOLERANCES = {"network_mse": 0.005, "server_msd": 0.01, "test_mse": 0.01}
_CONFIDENCE = math.erf(3.5 / math.sqrt(2))
# That the order of a table's rows makes a difference.
_ORDER_CONFIDENCE = 0.99
# Longer tables end in a steady state.
_LONGEST_CURVE = 20_000
_NUMBERS = ("no", "one", "two", "three")  # as words: there are at most three metrics


@dataclass(frozen=True)
class MetricComparison:
    """One metric, simulated and predicted.

    Attributes
    ----------
    metric : str
    simulated, standard_error, predicted : float
        Means, and the standard error of the simulated one.
    difference : float
        Predicted less simulated, relative to the latter.
    z_score : float
        The same in standard errors.
    agrees : bool
        Whether it is within the tolerance; or, with heavy tails, at least above the lower bound of the simulated mean.
    is_open : bool
        Whether it is the latter only: a few extreme trials dominate the simulated mean, and cannot tell.
    """

    metric: str
    simulated: float
    standard_error: float
    predicted: float
    difference: float
    z_score: float
    agrees: bool
    is_open: bool = False

    @property
    def verdict(self) -> str:
        """``"agrees"``, ``"differs"``, or ``"undecided"`` where tails are too heavy to tell."""
        if not self.agrees:
            return "differs"
        return "undecided" if self.is_open else "agrees"


@dataclass(frozen=True)
class OrderEffect:
    """Effect of the order of a table's rows on a metric.

    Attributes
    ----------
    metric : str
    in_order : float
        With the rows in the table's order, each once.
    difference : float
        The same less the mean over tables of rows drawn at random, relative to the latter.
    deviation : float
        Standard deviation of a single such table, relative to their mean.
    is_clear : bool
        Whether the difference is more than chance explains (99 %).
    """

    metric: str
    in_order: float
    difference: float
    deviation: float
    is_clear: bool


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Reported):
    """A simulation next to a prediction of the same scenario.

    The theory of your own data describes a stationary stream with the table's moments. So it is compared with trials
    that each draw their rows at random from the table's, over the same iterations. What the rows' own order adds to
    that is in :attr:`orders`.

    Attributes
    ----------
    simulation : SimulationResult
    prediction : Prediction
    metrics : tuple of MetricComparison
    in_order : SimulationResult, optional
        The simulation on your own table, row by row.
    """

    simulation: SimulationResult
    prediction: Prediction
    metrics: tuple[MetricComparison, ...]
    in_order: SimulationResult | None = None

    @property
    def orders(self) -> tuple[OrderEffect, ...]:
        """Effect of the order of the table's rows on each metric; empty for drawn streams."""
        if self.in_order is None:
            return ()
        reach = students_factor(self.simulation.trials, _ORDER_CONFIDENCE)
        effects = []
        for row in self.metrics:
            own, mean = getattr(self.in_order, row.metric).mean, row.simulated
            deviation = row.standard_error * math.sqrt(self.simulation.trials)
            if mean > 0 and math.isfinite(mean) and math.isfinite(own):
                is_clear = abs(own - mean) > reach * deviation
                effects.append(OrderEffect(row.metric, own, own / mean - 1, deviation / mean, is_clear))
        return tuple(effects)

    @property
    def standard_errors(self) -> float:
        """How many standard errors are allowed: 3.5 for many trials, more for few, by Student's t."""
        return students_factor(self.simulation.trials, _CONFIDENCE)

    @property
    def agrees(self) -> bool:
        """Whether every metric agrees."""
        return all(row.agrees for row in self.metrics)

    @property
    def tolerances(self) -> dict[str, float]:
        """The relative differences that are allowed in any case, by metric."""
        return {row.metric: TOLERANCES[row.metric] for row in self.metrics}

    @property
    def verdict(self) -> str:
        """Whether they agree, in a sentence.

        Where a few extreme trials dominate a simulated mean (heavy tails), the trials cannot tell.
        """
        titles, on_table = [METRIC_TITLES[row.metric] for row in self.metrics], self.in_order is not None
        differ = [METRIC_TITLES[row.metric] for row in self.metrics if not row.agrees]
        undecided = [METRIC_TITLES[row.metric] for row in self.metrics if row.is_open]
        every = "both metrics" if len(titles) == 2 else f"all {_NUMBERS[len(titles)]} metrics"
        if on_table:
            where = "rows drawn at random from your table"
            first = f"The theory differs from {where} in the {listed(differ)}."
            return f"{first if differ else f'Theory and simulation agree on {every} for {where}.'} {self._in_order}"
        if differ:
            return f"Theory and simulation differ in {every if differ == titles else listed(differ)}."
        if not undecided:
            return f"Theory and simulation agree on {every}."
        heavy = f"a few extreme trials dominate the simulated mean of {listed(undecided)}, so these trials cannot tell"
        if undecided == titles:
            return f"Undecided: {heavy}."
        settled = _NUMBERS[len(titles) - len(undecided)]
        return f"Theory and simulation agree on {settled} of {len(titles)} metrics; {heavy}."

    @property
    def _in_order(self) -> str:
        """Whether the order of the table's rows matters, in a sentence."""
        changed = [
            f"{METRIC_TITLES[e.metric]} is {percent(abs(e.difference))} {'higher' if e.difference > 0 else 'lower'}"
            for e in self.orders
            if e.is_clear
        ]
        if not changed:
            return "In the table's own order, differences are no larger than chance."
        return (
            f"In the table's own order the {listed(changed)}: rows depend on each other or change in time, which the "
            "theory leaves out."
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return json_object(
            {
                "agrees": self.agrees,
                "verdict": self.verdict,
                "metrics": _by_metric(self.metrics),
                "tolerances": TOLERANCES,
                "standard_errors": self.standard_errors,
                "orders": _by_metric(self.orders),
                "theory": self.prediction.theory,
                "theory_title": THEORY_TITLES[self.prediction.theory],
                "trials": self.simulation.trials,
                "seed": self.simulation.seed,
                "scenario": self.simulation.scenario.to_mapping(),
            }
        )

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a row per metric."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.metrics])

    def report(self) -> Report:
        """Return both steady states side by side, and the verdict."""
        result, theory, on_table = self.simulation, self.prediction.theory, self.in_order is not None
        trials = counted(result.trials, "table" if on_table else "trial")
        trials += " of rows drawn at random from yours" if on_table else ""
        notes = list(assumptions(result.scenario))
        if not on_table:
            notes[:0] = [
                f"The simulated {label_of(metric).title} still changes by {percent(change, 1, signed=True)} within the "
                f"last {result.tail:,} iterations, so it is not a steady state yet."
                for metric, change in result.unsteady_metrics.items()
            ]
        if theory == "independence":
            notes.append(
                "The prediction takes inputs as independent over time; a difference beyond the allowed one is what "
                "this assumption costs."
            )
        return Report(
            self.verdict,
            f"{trials} against the {THEORY_TITLES[theory]}: {describe_scenario(result.scenario)}.",
            (self._table(),),
            tuple(notes),
            self._next_step(),
            self.chart,
        )

    def chart(self) -> Chart:
        """Return the simulated learning curves with bands, and the predicted ones on top, as a value."""
        result, theory, curve = self.simulation, self.prediction.theory, self.prediction.learning_curve()
        series = [
            curve_series(result, metric, f"{title}, simulated", colour)
            for colour, (metric, title) in enumerate(METRIC_TITLES.items())
            if np.isfinite(result.curve[metric]).any()
        ]
        places = result.iterations.astype(np.float64), result.bin_width, "--"
        series += [theory_series(curve, row.metric, THEORY_TITLES[theory], *places) for row in self.metrics]
        title = f"{describe_scenario(result.scenario)}\n({counted(result.trials, 'trial')}, 95 % bands)"
        if self.in_order is not None:
            network = next(iter(METRIC_TITLES))
            series.append(curve_series(self.in_order, network, "network MSE, your rows in order", len(METRIC_TITLES)))
        scales = Scale("iteration", log=True), Scale("error (dB), lower is better")
        return Chart(sentence_case(title), *scales, tuple(series), size=(7.2, 4.6))

    def _table(self) -> Table:
        result = self.simulation
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
                *(row.predicted, row.difference, row.z_score, row.verdict),
            )
            for row in self.metrics
        )
        allowed = ", ".join(
            f"{percent(share)} for the {METRIC_TITLES[name]}" for name, share in self.tolerances.items()
        )
        note = (
            f"Difference: prediction against simulation. Allowed: {significant(self.standard_errors, 2)} "
            f"standard errors, but at least {allowed}."
        )
        title = f"Mean over the last {result.tail:,} of {result.scenario.iterations:,} iterations"
        return Table("Steady state" if self.in_order is None else title, columns, rows, (note,))

    def _next_step(self) -> NextStep:
        result, theory = self.simulation, theory_argument(self.prediction.theory)
        if result.scenario.data.rows is None and result.unsteady_metrics:
            longer = 4 * result.scenario.iterations
            return NextStep(
                "Compare over more iterations",
                f"psofed.compare(scenario.replace(iterations={longer}){theory})",
                f"psofed compare FILE --set iterations={longer}",
            )
        is_settled = self.agrees and not any(row.is_open for row in self.metrics)
        if is_settled or result.scenario.data.rows is not None:  # a table has no more rows
            return NextStep("Find the best stepsize", f"psofed.tune(scenario{theory})", "psofed tune FILE")
        trials = 4 * result.trials
        return NextStep(
            "Compare with more trials",
            f"psofed.compare(scenario, trials={trials}{theory})",
            f"psofed compare FILE --trials {trials}",
        )


@takes(ComparisonSettings)
def compare(scenario: Scenario | str | Path, settings: ComparisonSettings) -> Comparison:
    """Simulate and predict a scenario, and say whether they agree.

    Parameters
    ----------
    scenario : Scenario or path
        The scenario, or the TOML file that describes it.

    Returns
    -------
    Comparison
        Every metric simulated and predicted, with a verdict.

    Examples
    --------
    >>> found = compare(Scenario(num_clients=10, dimension=3, iterations=400), trials=64)
    >>> found.agrees, found.metrics[0].verdict
    (True, 'agrees')
    """
    scenario = as_scenario(scenario)
    prediction = predict(scenario, settings.theory)
    trials = settings.shared_with(SimulationSettings)
    if scenario.data.rows is None:
        return compare_results(call_with(simulate, scenario, trials), prediction)
    drawn = run_trials(scenario, trials, draws_rows=True)
    return replace(compare_results(drawn, prediction), in_order=call_with(simulate, scenario, trials))


def compare_results(simulation: SimulationResult, prediction: Prediction) -> Comparison:
    """Compare every metric's steady state; with your own data its mean over the same iterations."""
    rows, standard_errors = [], students_factor(simulation.trials, _CONFIDENCE)
    predictions = _predictions(simulation, prediction)
    for metric, tolerance in TOLERANCES.items():
        simulated, predicted = getattr(simulation, metric), predictions[metric]
        if math.isnan(predicted):
            continue  # the theory has no such number
        mean, error = simulated.mean, simulated.standard_error
        difference, is_open = predicted - mean, False
        if math.isfinite(predicted) and math.isfinite(mean):
            allowed = max(tolerance * mean, standard_errors * error if error > 0 else 0.0)
            agrees = abs(difference) <= allowed
            is_open = not agrees and simulated.is_heavy_tailed and predicted >= simulated.interval[0]
        else:  # both diverge, or they disagree
            agrees = not math.isfinite(predicted) and not math.isfinite(mean)
            difference = error = math.nan
        ratio = difference / mean if mean else math.nan
        z_score = difference / error if error > 0 else math.nan
        rows.append(MetricComparison(metric, mean, error, predicted, ratio, z_score, agrees or is_open, is_open))
    return Comparison(simulation, prediction, tuple(rows))


def _predictions(simulation: SimulationResult, prediction: Prediction) -> dict[str, float]:
    scenario = prediction.scenario
    steady = {metric: float(getattr(prediction, metric)) for metric in TOLERANCES}
    if scenario.data.rows is None or scenario.iterations > _LONGEST_CURVE or not prediction.is_stable:
        return steady
    curve = prediction.learning_curve()  # most tables end before a steady state
    return {metric: float(getattr(curve, metric)[-simulation.tail :].mean()) for metric in TOLERANCES}


def _by_metric(rows: Sequence[MetricComparison | OrderEffect]) -> dict[str, dict[str, Any]]:
    return {row.metric: {k: v for k, v in asdict(row).items() if k != "metric"} for row in rows}
