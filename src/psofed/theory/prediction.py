"""Predicts one scenario: steady state, learning curve, stability and the best stepsize.

The steady state x = F x + s gives the excess network MSE and the server's MSD by source
(:mod:`psofed.theory.solve`); names and formulas of metrics and terms are in :mod:`psofed.theory.metrics`.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.numbers import json_object
from psofed.common.settings import takes
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.parts.affine import LinearLearner
from psofed.render import Report, Reported
from psofed.render.numbers import decibels
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.settings.theory import THEORY_TITLES, PredictionSettings
from psofed.theory.coverage import check_stepsize
from psofed.theory.metrics import NOTHING, Level, Metrics, PredictedLevel, SteadyState, Terms, metrics_of
from psofed.theory.model import TheoryModel
from psofed.theory.solve import Solver
from psofed.theory.stability import mean_square_stepsize_bound, mean_stepsize_bound, stability_limit

if TYPE_CHECKING:
    import pandas

    from psofed.render.charts import Chart
    from psofed.theory.worst import WorstAttack


_ROUGH = 1e-5  # relative error of what is shown on a screen


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Predicted metrics at iterations 0 … n − 1, arrays (n,)."""

    network_mse: FloatArray
    server_msd: FloatArray
    test_mse: FloatArray
    honest_mse: FloatArray

    def __repr__(self) -> str:
        last = ", ".join(f"{title} {decibels(float(getattr(self, metric)[-1]))}"
                         for metric, title in METRIC_TITLES.items())  # fmt: skip
        return f"LearningCurve: {self.network_mse.size} iterations, at the last {last}"


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Reported):
    """A theory's answer for one scenario; what takes longer is computed on first use.

    It follows from scenario and theory, so two of the same are equal. Steady-state values are infinite where the
    stepsize is not stable (`spectral_radius` at least 1).

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    theory : str
        ``"exact"``, ``"paper"`` or ``"independence"`` (inputs taken as independent over time).
    small_stepsize : bool
        The paper's small-stepsize approximation.
    shared : Solver, optional
        The solver of a prediction that differs in the stepsize alone; see :meth:`at`.
    """

    scenario: Scenario
    theory: str = "exact"
    small_stepsize: bool = False
    shared: Solver | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "solver"} | {"shared": None}

    def at(self, stepsize: float) -> "Prediction":
        """Predict the same scenario at another stepsize; what does not depend on the stepsize is computed once.

        Stepsizes that differ between clients keep their proportions, and `stepsize` is their mean.
        """
        is_common = isinstance(self.scenario.stepsize, float | int)
        changed: Any = stepsize if is_common else self.model.stepsizes(stepsize).tolist()
        return replace(self, scenario=self.scenario.replace(stepsize=changed), shared=self.solver)

    @cached_property
    def solver(self) -> Solver:
        """The solver that solves the model."""
        if self.shared is not None:
            return self.shared
        return Solver(TheoryModel(self.scenario, self.theory, self.small_stepsize))

    @property
    def model(self) -> TheoryModel:
        """The scenario as the theory sees it."""
        return self.solver.model

    @cached_property
    def is_stable(self) -> bool:
        """Whether all second moments stay bounded."""
        check_stepsize(self.model, self.scenario.mean_stepsize)
        return self.solver.is_stable(self.scenario.mean_stepsize)

    @property
    def network_mse(self) -> PredictedLevel:
        """Steady-state network MSE, (1/K) Σ_k E[ε_k²], the observation noise included."""
        return PredictedLevel(self._metrics.network_mse)

    @property
    def server_msd(self) -> PredictedLevel:
        """Steady-state E‖w_n − w*‖² at the server."""
        return PredictedLevel(self._metrics.server_msd)

    @property
    def test_mse(self) -> PredictedLevel:
        """Steady-state MSE of the server on its test set; NaN where the model is not linear, and with your own data."""
        return PredictedLevel(self._metrics.test_mse)

    @cached_property
    def honest_mse(self) -> PredictedLevel:
        """Steady-state MSE averaged over the clients that are not Byzantine; NaN if all are."""
        if self.model.tells_honest or not self.is_stable:
            return PredictedLevel(self._metrics.honest_mse)
        level = self.solver.by_honesty.level(self.scenario.mean_stepsize)
        return PredictedLevel(level.metrics(self.model).honest_mse)

    @property
    def metrics(self) -> Metrics[float]:
        """All of them as plain numbers."""
        return self._metrics._replace(honest_mse=float(self.honest_mse))

    @property
    def _metrics(self) -> Metrics[float]:
        return self.steady_state.total.metrics(self.model)

    @property
    def terms(self) -> Terms:
        """The terms of the network MSE."""
        return self.steady_state.terms(self.model)

    @cached_property
    def steady_state(self) -> SteadyState:
        """Both metrics by source; infinite where there is no steady state."""
        stepsize, model, solver = self.scenario.mean_stepsize, self.model, self.solver
        if self.is_stable:
            return solver.steady_state(stepsize)
        endless = Level(math.inf, math.inf, math.inf)
        # An attack that only adds noise is not what makes it unstable.
        if model.clean is not model and not model.is_additive and solver.clean.is_stable(stepsize):
            return replace(solver.clean.steady_state(stepsize), attack=endless)
        # None of the sources that are present has a steady state of its own.
        present = (True, bool(model.attacks), model.walk > 0, model.clean.has_direction)
        return SteadyState(*(endless if there else NOTHING for there in present))

    @cached_property
    def spectral_radius(self) -> float:
        """ρ(𝓕) of the recursion of second moments."""
        return self.solver.spectral_radius(self.scenario.mean_stepsize)

    @cached_property
    def max_stepsize(self) -> float:
        """Largest stable stepsize: the true one (exact), or the paper's bound (rhoFcond); 0 if none is stable."""
        bound = mean_square_stepsize_bound(self.model.fleet)
        return bound if self.theory == "paper" else stability_limit(self.solver.spectral_radius, bound)

    @cached_property
    def mean_max_stepsize(self) -> float:
        """Below it the mean converges, (cond); sufficient, and the same in both theories; NaN but for LMS.

        Attacks that turn or scale uploads play no part in it.
        """
        plain = self.scenario.learner.linear() == LinearLearner() and isinstance(self.scenario.stepsize, float | int)
        return mean_stepsize_bound(self.model.fleet) if plain else math.nan

    @cached_property
    def optimal_stepsize(self) -> float:
        """The stepsize with the lowest predicted network MSE.

        0 where smaller is always better, as it is without an attack and a target that walks; NaN where no stepsize is
        stable.
        """
        from psofed.theory.stepsize import NoStableStepsizeError, best_stepsize

        # The approximation for small stepsizes has no say in which one is best.
        solver = Solver(replace(self.model, small_stepsize=False)) if self.small_stepsize else self.solver
        try:
            return best_stepsize(solver)
        except NoStableStepsizeError:
            return math.nan

    def learning_curve(self, iterations: int | None = None) -> LearningCurve:
        """Predict the metrics over the iterations, from models that are all zero.

        Parameters
        ----------
        iterations : int, optional
            How many; the scenario's own by default.
        """
        if self.is_stable:
            self.solver.check_reach(self.scenario.mean_stepsize)
        levels = self.solver.by_honesty.curve(self.scenario.mean_stepsize, iterations or self.scenario.iterations)
        return LearningCurve(*metrics_of(self.model, *levels))

    def worst_attack(self, power: float | None = None) -> "WorstAttack":
        """Find the worst additive attack of a power by the scenario's Byzantine clients, with a breakdown.

        Parameters
        ----------
        power : float, optional
            Variance of the noise per entry; by default the attack's own ``variance``.

        Examples
        --------
        >>> from psofed import Scenario
        >>> from psofed.attacks import Gaussian
        >>> scenario = Scenario(num_clients=20, dimension=4, attack=Gaussian(num_byzantine=5, variance=0.5))
        >>> worst = predict(scenario).worst_attack()
        >>> worst.steps[1].name, worst.steps[1].network_mse < worst.worst.network_mse
        ('isotropic noise', True)
        """
        from psofed.theory.worst import find_worst_attack

        return find_worst_attack(self, power)

    def worst_network_mse(self, power: float | None = None) -> float:
        """Return the network MSE under the worst additive attack of a power, at the cost of two steady states.

        That of :meth:`worst_attack` over white inputs; over correlated ones, its attacks that point in the direction
        in which models learn most slowly, the inputs' last principal one.

        Parameters
        ----------
        power : float, optional
            As for :meth:`worst_attack`.
        """
        from psofed.theory.worst import worst_network_mse

        return worst_network_mse(self, power)

    def report(self, *, stepsizes: bool = True) -> Report:
        """Return the steady state, what contributes to it, and what to try next.

        Parameters
        ----------
        stepsizes : bool
            Whether to say which stepsizes are stable and best, which may take a second.
        """
        from psofed.theory.reports import prediction_report

        return prediction_report(self, stepsizes)

    def __repr__(self) -> str:
        return self.report(stepsizes=False).to_text()

    def _repr_html_(self) -> str:
        return self.report(stepsizes=False).to_html()

    def chart(self) -> "Chart":
        """Return the predicted learning curve in dB, as a value."""
        from psofed.theory.reports import prediction_chart

        return prediction_chart(self)

    def to_dataframe(self, table: str = "steady_state") -> "pandas.DataFrame":
        """Return a table.

        Parameters
        ----------
        table : str
            ``"steady_state"``: a row per metric and per term of the network MSE. ``"curve"``: a row per metric and
            iteration of the learning curve.
        """
        import pandas

        check_choice("table", table, ("steady_state", "curve"))
        if table == "curve":
            curve = self.learning_curve()
            wide = pandas.DataFrame({metric: getattr(curve, metric) for metric in METRIC_TITLES})
            return wide.rename_axis("iteration").reset_index().melt("iteration", var_name="metric")
        terms = {f"network_mse from {name}": value for name, value in asdict(self.terms).items()}
        values = self.metrics._asdict() | terms
        return pandas.DataFrame({"metric": list(values), "value": list(values.values())})

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and numbers; infinite values (an unstable steady state) become None."""
        values = {
            **self.metrics._asdict(),
            "terms": {"data": self.terms.data, "attack": self.terms.attack, "noise": self.terms.noise}
            | ({"drift": self.terms.drift} if self.model.walk else {})
            | ({"targets": self.terms.targets} if self.model.clean.has_direction else {}),
            "spectral_radius": self.spectral_radius,
            "max_stepsize": self.max_stepsize,
            "mean_max_stepsize": self.mean_max_stepsize,
            "optimal_stepsize": self.optimal_stepsize,
            "theory": self.theory,
            "theory_title": THEORY_TITLES[self.theory],
            "scenario": self.scenario.to_mapping(),
        }
        if self.model.is_sampled:
            sampling = self.steady_state.sampling_error
            values["sampling_error"] = {"network_mse": sampling.excess, "server_msd": sampling.server}
        return json_object(values)


def predict_roughly(scenario: Scenario, theory: str = "exact") -> Prediction:
    """Predict a scenario to four digits, honest clients' MSE included, in a fraction of the time: for screens."""
    solver = Solver(TheoryModel(scenario, theory, by_honesty=True), _ROUGH)
    return Prediction(scenario, theory, shared=solver)


@takes(PredictionSettings)
def predict(scenario: Scenario | str | Path, settings: PredictionSettings) -> Prediction:
    """Predict what simulating a scenario will show; :meth:`Prediction.at` predicts it at other stepsizes.

    Parameters
    ----------
    scenario : Scenario or path
        The scenario, or the TOML file that describes it.

    Returns
    -------
    Prediction
        Errors, their sources, stability and the best stepsize.

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import Gaussian
    >>> scenario = Scenario(num_clients=50, dimension=5, attack=Gaussian(num_byzantine=15))
    >>> round(predict(scenario).network_mse, 5), round(predict(scenario, theory="paper").network_mse, 5)
    (0.02585, 0.02529)
    """
    prediction = Prediction(as_scenario(scenario), settings.theory, settings.small_stepsize)
    _ = prediction.terms  # refuses what is not covered, and does the work that is always needed
    return prediction
