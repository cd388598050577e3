"""Simulation and theory of the same scenario, and whether they agree."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.numbers import json_object
from psofed.common.settings import call_with, takes
from psofed.render import Report, Reported
from psofed.results import SimulationResult
from psofed.results.estimates import students_factor
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.settings.simulation import SimulationSettings
from psofed.settings.theory import THEORY_TITLES, ComparisonSettings
from psofed.simulation.monte_carlo import run_trials, simulate
from psofed.theory.prediction import Prediction, predict

if TYPE_CHECKING:
    import pandas

    from psofed.render.charts import Chart

# Agreement: within this ratio, or as likely as 3.5 standard errors of a normal variate, whichever is more.
TOLERANCES = {"network_mse": 0.005, "server_msd": 0.01, "test_mse": 0.01}
_CONFIDENCE = math.erf(3.5 / math.sqrt(2))
# That the order of a table's rows makes a difference.
_ORDER_CONFIDENCE = 0.99
# Longer tables end in a steady state.
_LONGEST_CURVE = 20_000


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

    @property
    def tolerances(self) -> dict[str, float]:
        """The relative differences that are allowed in any case, by metric."""
        return {row.metric: TOLERANCES[row.metric] for row in self.metrics}

    @property
    def verdict(self) -> str:
        """Whether they agree, in a sentence."""
        from psofed.studies.comparison.report import verdict

        return verdict(self)

    def report(self) -> Report:
        """Return both steady states side by side, and the verdict."""
        from psofed.studies.comparison.report import comparison_report

        return comparison_report(self)

    def chart(self) -> "Chart":
        """Return the simulated learning curves with bands, and the predicted ones on top, as a value."""
        from psofed.studies.comparison.report import comparison_chart

        return comparison_chart(self)


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


def _by_metric(rows: Iterable[MetricComparison | OrderEffect]) -> dict[str, dict[str, Any]]:
    return {row.metric: {k: v for k, v in asdict(row).items() if k != "metric"} for row in rows}
