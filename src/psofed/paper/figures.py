"""The nine figures of the paper: a scenario, an axis and the curves of each, simulated and predicted.

Notes
-----
Of SignSGD the paper says neither which signs nor which vote. The one called SignSGD is fitted to its figure 1; two
plainer ones are shown next to it, because the paper's claim depends on the choice. The rivals have no redrawn uplink,
but with M = D PSO-Fed's server is Online-Fed's; so that panel, and the theories, take PSO-Fed with M = D for it.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.fleet import draw_fleet
from psofed.paper.model import CellResults, FigureData, FigureSeries, FigureSubject, Quality
from psofed.parts.attacks.by_value import Gaussian
from psofed.results import METRIC_TITLES
from psofed.scenario import UPLINKS, Data, Scenario
from psofed.scenario.changes import with_values
from psofed.studies.sweeps import Axis, Cell, Grid

# μ of the stepsize axes.
STEPSIZES = (0.01, 0.03, 0.05, 0.07, 0.09, 0.11, 0.13, 0.15, 0.17, 0.19, 0.2)

# Of figures 2 to 9.
FLEET_SEED = 17

QUICK_TRIALS = 16


def paper_scenario(*, num_byzantine: int, probability: float, variance: float, **fields: Any) -> Scenario:
    """Return the fleet of the paper's experiments 2 to 9: K = 50, D = 5, |S_n| = 5, M = 1, μ = 0.15.

    Notes
    -----
    The paper does not print μ of its figures 2 to 5; 0.15 fits their level. It runs 3000 iterations; half of
    them are enough for a steady state at this μ (a test and the report look at the drift). Its fleet is unknown;
    `FLEET_SEED` draws one whose theory is within 0.13 dB of the printed theory everywhere.
    """
    attack = Gaussian(num_byzantine=num_byzantine, probability=probability, variance=variance)
    data = Data(fleet_seed=FLEET_SEED)
    return Scenario(**{"num_clients": 50, "dimension": 5, "iterations": 1500, "attack": attack, "data": data, **fields})


def axis(field: str, *values: float) -> Axis:
    """Return an axis along one field."""
    return Axis((field,), tuple((value,) for value in values))


def stepsize_axis() -> Axis:
    """Return the stepsizes, each with iterations enough: twice 25/μ, ten times the slowest client's memory.

    The slowest mode, a client with ς² = 0.2 left alone, forgets as (1 − 2μς²)ⁿ ≈ exp(−0.4μn).
    """
    return Axis(("stepsize", "iterations"), tuple((mu, max(1500, round(50 / mu))) for mu in STEPSIZES))


@dataclass(frozen=True)
class PlannedCurve:
    """A curve of a figure.

    Attributes
    ----------
    label : str
        In the legend.
    changes : mapping
        Fields that differ from the figure's base scenario.
    equivalent : mapping or None
        Fields of PSO-Fed with the same server, which the theories and the redrawn uplink take; None for an algorithm
        that has no redrawn uplink, which is simulated for the equations as written only.
    term : str
        Term of the network MSE that the curve shows, if that is not the figure's metric: ``"data"`` or ``"attack"``.
    """

    label: str
    changes: Mapping[str, Any]
    equivalent: Mapping[str, Any] | None = None
    term: str = ""


def curves_over(field: str, label: str, *values: float) -> dict[str, Any]:
    """Return the curves of a plan that differ in one field; `label` is a format for its value."""
    curves = tuple(PlannedCurve(label.format(value), {field: value}, {field: value}) for value in values)
    return {"curve_field": field, "curves": curves}


@dataclass(frozen=True, kw_only=True)
class FigurePlan(FigureSubject):
    """Plan of a figure.

    Attributes
    ----------
    x_axis : Axis
        What varies along the abscissa.
    curves : tuple of PlannedCurve
    curve_field : str
        The field that tells the curves apart.
    small_stepsize : bool
        Show the paper's theory in its small-stepsize approximation too.
    trials : int
        Of every point, for standard errors of at most 0.05 dB.
    is_changed : bool
        Whether the base is not the paper's: there are no printed points, and theory only where it applies.
    """

    x_axis: Axis
    curves: tuple[PlannedCurve, ...]
    curve_field: str
    small_stepsize: bool = False
    trials: int = 192
    is_changed: bool = False

    def changed(self, changes: Mapping[str, Any]) -> "FigurePlan":
        """Return the figure with fields of its base set by dotted name."""
        if not changes:
            return self
        for name, value in changes.items():
            if name in (*self.varied, *self.x_axis.fields):
                raise InvalidValueError(name, value, f"left out: it varies in {self.name}")
        words = ", ".join(f"{name} = {value}" for name, value in changes.items())
        caption = f"{self.caption} Changed: {words}."
        return replace(self, base=with_values(self.base, changes), caption=caption, is_changed=True)

    @property
    def varied(self) -> dict[str, list[Any]]:
        """The fields that vary, with their values."""
        values = [curve.changes.get(self.curve_field, curve.label) for curve in self.curves]
        return {
            "uplink": list(UPLINKS),
            self.curve_field: list(dict.fromkeys(values)),
            self.x_axis.name: self.x_axis.labels,
        }

    def cells(self, quality: Quality) -> list[Cell]:
        """Return what has to be simulated, curve by curve."""
        return [cell for number, uplink in self._simulated() for cell in self._cells(number, uplink, quality)]

    def build(self, quality: Quality, results: CellResults) -> FigureData:
        """Make the figure from the simulated cells, both theories and the printed points."""
        metric = self.metric if self.metric in METRIC_TITLES else "network_mse"
        levels: dict[tuple[int, str], FloatArray] = {}
        series, unsteady = [], []
        for number, uplink in self._simulated():
            curve, points = self.curves[number], self._cells(number, uplink, quality)
            simulated = [results(cell) for cell in points]
            levels[number, uplink] = np.stack([result.steady_state[metric] for result in simulated])
            unsteady += [
                f"{curve.label}, {self.x_label} = {x}, uplink {uplink}"
                for x, result in zip(self.x_axis.labels, simulated, strict=True)
                if "network_mse" in result.unsteady_metrics
            ]
            trials = levels[number, uplink]
            if curve.term == "data":
                trials = trials - draw_fleet(self.base).noise_variance.mean()
            elif curve.term == "attack":
                trials = trials - levels[0, uplink]
            series.append(self._from_trials(number, uplink, trials))
            series += self._predictions(number, uplink)
        return FigureData(
            **{name: getattr(self, name) for name in FigureSubject.__dataclass_fields__},
            varied=self.varied,
            series=(*series, *self._published()),
            trials=quality.choose(self.trials, QUICK_TRIALS),
            seed=quality.seed,
            unsteady=tuple(unsteady),
        )

    def example(self) -> Scenario:
        """Return a point of the first curve that theory predicts, under the strongest attack."""
        changes = next(curve.equivalent for curve in self.curves if curve.equivalent is not None)
        name, values = self.x_axis.name, self.x_axis.labels
        return with_values(self.base, {**changes, **({name: values[-1]} if name.startswith("attack.") else {})})

    def _simulated(self) -> Iterator[tuple[int, str]]:
        """Yield the number of every simulated curve with its uplink."""
        for uplink in UPLINKS:
            for number, curve in enumerate(self.curves):
                if uplink == "same" or curve.equivalent is not None:
                    yield number, uplink

    def _cells(self, number: int, uplink: str, quality: Quality) -> list[Cell]:
        curve = self.curves[number]
        changes = curve.changes if uplink == "same" else curve.equivalent or {}
        base = with_values(self.base, {**changes, "uplink": uplink})
        trials = quality.choose(self.trials, QUICK_TRIALS)
        return Grid(base, (self.x_axis,), trials, quality.seed, tail=0.5).cells()

    def _series(self, number: int, uplink: str, kind: str, y: Any, **more: Any) -> FigureSeries:
        x = np.array(self.x_axis.labels, dtype=float)
        label = more.pop("label", self.curves[number].label)
        return FigureSeries(label, kind, uplink, x, np.array(y, dtype=float), number, **more)

    def _from_trials(self, number: int, uplink: str, trials: FloatArray) -> FigureSeries:
        """Return the means over trials, shape (points, trials), with their standard errors."""
        count = trials.shape[1]
        with np.errstate(invalid="ignore"):
            spread = trials.std(axis=1, ddof=1) if count > 1 else np.full(len(trials), math.nan)
        means, error = trials.mean(axis=1), spread / math.sqrt(count)
        return self._series(number, uplink, "simulation", means, standard_error=error, trials=trials)

    def _predictions(self, number: int, uplink: str) -> Iterator[FigureSeries]:
        """Yield what the theories say of a curve."""
        curve = self.curves[number]
        if curve.equivalent is None:
            return
        base = with_values(self.base, {**curve.equivalent, "uplink": uplink})
        scenarios = [cell.scenario for cell in Grid(base, (self.x_axis,)).cells()]
        # The paper's theory describes the redrawn uplink, whatever the equations say.
        theories = [("exact", False), ("paper", False), ("paper", True)][: 2 + self.small_stepsize]
        for theory, small in theories if uplink == "redrawn" else theories[:1]:
            try:
                points = [predict_point(scenario, theory, small) for scenario in scenarios]
            except NotCoveredError:
                if not self.is_changed:
                    raise
                continue
            y = [point[curve.term or self.metric] for point in points]
            label = f"{curve.label}, small-stepsize approximation" if small else curve.label
            yield self._series(number, uplink, f"{theory}-theory", y, label=label)

    def _published(self) -> Iterator[FigureSeries]:
        """Yield the curves printed in the paper, each with the number of ours that it should be."""
        numbers = {curve.label: number for number, curve in enumerate(self.curves)}
        for printed in () if self.is_changed else published_table().get(self.name, ()):
            name, kind = printed["curve"], printed["kind"]
            x, y = np.array(printed["x"], dtype=float), 10 ** (np.array(printed["y_db"]) / 10)
            yield FigureSeries(f"{name}, printed {kind}", "published", None, x, y, numbers[name])


def predict_point(scenario: Scenario, theory: str, small_stepsize: bool = False) -> Mapping[str, float]:
    """Predict the metrics of a scenario and the terms E_φ (``data``) and E_ω (``attack``), all linear.

    Perturbations of the Gaussian attack have mean zero, so all that it adds is proportional to p_a σ_B². It is solved
    once for p_a σ_B² = 1 and scaled; length of the run and, for the paper's theory, uplink play no part.
    """
    attack = scenario.attack
    common = scenario.replace(iterations=1, uplink="same" if theory == "paper" else scenario.uplink)
    if not isinstance(attack, Gaussian):
        return _solve(common, theory, small_stepsize)
    quiet = _solve(common.replace(attack=None), theory, small_stepsize)
    if not attack.num_byzantine:
        return quiet
    unit = Gaussian(num_byzantine=attack.num_byzantine, probability=1.0, variance=1.0)
    loud = _solve(common.replace(attack=unit), theory, small_stepsize)
    strength = attack.probability * attack.variance
    return {name: value + strength * (loud[name] - value) for name, value in quiet.items()}


@cache
def _solve(scenario: Scenario, theory: str, small_stepsize: bool) -> Mapping[str, float]:
    from psofed.theory.prediction import predict

    prediction = predict(scenario, theory=theory, small_stepsize=small_stepsize)
    metrics = {name: float(getattr(prediction, name)) for name in METRIC_TITLES}
    return {**metrics, "data": prediction.terms.data, "attack": prediction.terms.attack}


@cache
def published_table() -> dict[str, Any]:
    """Return what stands in ``published.json``: the curves of each printed figure in dB, and where they come from."""
    table: dict[str, Any] = json.loads(files("psofed.paper").joinpath("published.json").read_text("utf-8"))
    return table


# Trials for standard errors of at most 0.05 dB: of the MSE (192 by default), of its terms, and of test errors.
_TERM_TRIALS, _TEST_TRIALS = 448, 512

# Stochastic signs wander; it takes longer runs to know their mean as well as the others'.
_SIGN: dict[str, Any] = {"algorithm": "signsgd", "stepsize": 0.08}
_PLAIN_SIGN = {**_SIGN, "algorithm_options.signs": "deterministic"}
_PROBABILITIES = axis("attack.probability", 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_SHARED = axis("num_shared", 1, 2, 3, 4, 5)


def _term_curve(label: str, term: str, num_byzantine: int) -> PlannedCurve:
    changes = {"attack.num_byzantine": num_byzantine}
    return PlannedCurve(label, changes, changes, term)


_FIGURES = (
    # The paper runs 3000 iterations; all algorithms are in their steady state after a quarter of them.
    FigurePlan(
        name="fig1",
        title="PSO-Fed and its rivals over the number of Byzantine clients",
        caption="Steady-state test MSE at the server for 0 to 20 Byzantine clients of 100; attack variance 0.25, "
        "probability 1; every algorithm within the same communication budget, M = 1 number per participant "
        "and iteration. On the right, PSO-Fed and Online-Fed (M = 5) with the upload set redrawn.",
        base=paper_scenario(num_byzantine=0, probability=1.0, variance=0.25, num_clients=100, data=Data()),
        x_axis=axis("attack.num_byzantine", 0, 5, 10, 15, 20),
        x_label="Byzantine clients |S_B|",
        curve_field="algorithm",
        curves=(
            PlannedCurve("PSO-Fed", {}, {}),
            PlannedCurve("Online-Fed", {"algorithm": "online-fed"}, {"num_shared": 5}),
            PlannedCurve("SignSGD", {**_SIGN, "iterations": 4500}),
            PlannedCurve("CS-Fed", {"algorithm": "cs-fed"}),
            PlannedCurve("QS-Fed", {"algorithm": "qs-fed"}),
            PlannedCurve("SignSGD, plain signs, majority", _PLAIN_SIGN),
            PlannedCurve("SignSGD, plain signs, mean", {**_PLAIN_SIGN, "algorithm_options.vote": "mean"}),
        ),
        metric="test_mse",
        trials=_TEST_TRIALS,
    ),
    FigurePlan(
        name="fig2",
        title="MSE over the number of shared parameters",
        caption="Steady-state MSE of PSO-Fed for M = 1 … 5 shared parameters and 5 or 15 Byzantine clients; attack "
        "variance 0.5, probability 0.2. The paper calls it test MSE; its values are those of the network "
        "MSE, shown here.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
        x_axis=_SHARED,
        x_label="shared parameters M",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 5, 15),
        trials=_TERM_TRIALS,
    ),
    FigurePlan(
        name="fig3",
        title="MSE over the attack's strength",
        caption="Steady-state network MSE of PSO-Fed over the attack's variance for 5 or 15 Byzantine clients; "
        "M = 1, attack probability 0.2.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
        x_axis=axis("attack.variance", 0.0, 0.25, 0.5, 0.75, 1.0),
        x_label="attack variance σ_B²",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 5, 15),
    ),
    FigurePlan(
        name="fig4",
        title="MSE over the attack's probability, for two numbers of Byzantine clients",
        caption="Steady-state MSE of PSO-Fed over the attack's probability for 5 or 15 Byzantine clients; M = 1, "
        "attack variance 0.25. The paper calls it test MSE; its values are those of the network "
        "MSE, shown here.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.25),
        x_axis=_PROBABILITIES,
        x_label="attack probability p_a",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 5, 15),
    ),
    FigurePlan(
        name="fig5",
        title="MSE over the attack's probability, for partial and full sharing",
        caption="Steady-state MSE of PSO-Fed over the attack's probability for M = 1 or 5 shared parameters; 5 "
        "Byzantine clients, attack variance 0.25.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.25),
        x_axis=_PROBABILITIES,
        x_label="attack probability p_a",
        **curves_over("num_shared", "M = {}", 1, 5),
    ),
    FigurePlan(
        name="fig6",
        title="MSE over the stepsize, for three numbers of Byzantine clients",
        caption="Steady-state network MSE of PSO-Fed over the stepsize for 0, 5 or 15 Byzantine clients; M = 1, "
        "attack variance 0.25, probability 0.25.",
        base=paper_scenario(num_byzantine=5, probability=0.25, variance=0.25),
        x_axis=stepsize_axis(),
        x_label="stepsize μ",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 0, 5, 15),
    ),
    FigurePlan(
        name="fig7",
        title="MSE over the stepsize, for three attack strengths",
        caption="Steady-state network MSE of PSO-Fed over the stepsize for attack variances 0, 0.25 and 1; M = 1, 5 "
        "Byzantine clients, attack probability 0.25.",
        base=paper_scenario(num_byzantine=5, probability=0.25, variance=0.25),
        x_axis=stepsize_axis(),
        x_label="stepsize μ",
        **curves_over("attack.variance", "σ_B² = {}", 0.0, 0.25, 1.0),
    ),
    FigurePlan(
        name="fig8",
        title="The small-stepsize approximation",
        caption="Steady-state network MSE of PSO-Fed over the stepsize, and the paper's theory with and without its "
        "small-stepsize approximation, for 0 or 10 Byzantine clients; M = 1, attack variance 0.5, "
        "probability 0.25.",
        base=paper_scenario(num_byzantine=10, probability=0.25, variance=0.5),
        x_axis=stepsize_axis(),
        x_label="stepsize μ",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 0, 10),
        small_stepsize=True,
    ),
    # The attack's perturbations have mean zero and are independent of everything else, so the simulation shows the
    # terms one by one: E_ω is the paired difference with and without the attack on the same draws, and E_φ is the MSE
    # without an attack less the noise term E_Θ = 1/K Σ σ_νk².
    FigurePlan(
        name="fig9",
        title="The terms of the MSE over the number of shared parameters",
        caption="E_ω, what the attack adds to the network MSE, and E_φ, what the data's noise adds, over M; "
        "attack variance 0.5, probability 0.2. Simulated terms are differences on the same draws.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
        x_axis=_SHARED,
        x_label="shared parameters M",
        curve_field="attack.num_byzantine",
        curves=(
            _term_curve("E_φ (data)", "data", 0),
            _term_curve("E_ω (attack), |S_B| = 5", "attack", 5),
            _term_curve("E_ω (attack), |S_B| = 15", "attack", 15),
        ),
        metric="term",
        trials=_TERM_TRIALS,
    ),
)


def figure_names() -> tuple[str, ...]:
    """Names of all figures, in the order of the paper's captions.

    Examples
    --------
    >>> figure_names()[0], len(figure_names())
    ('fig1', 9)
    """
    return tuple(plan.name for plan in _FIGURES)


def load_figure(name: str) -> FigurePlan:
    """Return the figure called `name`."""
    return _FIGURES[figure_names().index(check_choice("figure", name, figure_names()))]
