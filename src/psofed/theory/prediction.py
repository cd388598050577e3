"""What is predicted for a scenario: steady state, learning curve, stability and the best stepsize."""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.numbers import finite_or_none
from psofed.common.settings import takes
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.render import Report, Reported
from psofed.render.numbers import decibels
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.settings.theory import PredictionSettings
from psofed.theory.coverage import check_stepsize
from psofed.theory.models import Model
from psofed.theory.recursion import Level
from psofed.theory.stability import mean_square_stepsize_bound, mean_stepsize_bound, stability_limit
from psofed.theory.steady import Solver, SteadyState

if TYPE_CHECKING:
    import pandas

    from psofed.render.charts import Chart
    from psofed.theory.evasion import EvasionPrediction


@dataclass(frozen=True)
class Terms:
    """The terms that the steady-state network MSE (SSMSE) is the sum of.

    `data`, `noise`, `drift` and `targets` are those of the same fleet without the attack. `attack` is what the attack
    adds to that: also what it does to the effect of noise, walk and targets, and all products with first moments. It
    is negative where an attack does good.

    Attributes
    ----------
    data : float
        E_φ: the clients' observation noise, through the models.
    attack : float
        E_ω: what the attack adds.
    noise : float
        E_Θ: the observation noise itself, the mean of σ_νk².
    drift : float
        The lag behind a target that walks; 0 if it stays where it is.
    targets : float
        The price of sharing one model among clients with targets of their own; 0 if they have none.
    """

    data: float
    attack: float
    noise: float
    drift: float = 0.0
    targets: float = 0.0


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Predicted metrics at iterations 0 … n − 1, arrays (n,)."""

    network_mse: FloatArray
    server_msd: FloatArray
    test_mse: FloatArray

    def __repr__(self) -> str:
        last = ", ".join(f"{title} {decibels(float(getattr(self, metric)[-1]))}"
                         for metric, title in METRIC_TITLES.items())  # fmt: skip
        return f"LearningCurve: {self.network_mse.size} iterations, at the last {last}"


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Reported):
    """A theory's answer for one scenario; what takes longer is computed when first asked for.

    Parameters
    ----------
    scenario : Scenario
    theory : str
        ``"exact"`` or ``"paper"``.
    small_stepsize : bool
        The paper's small-stepsize approximation.

    Notes
    -----
    When the stepsize is not stable (:attr:`spectral_radius` at least 1) the steady-state values are infinite.
    """

    scenario: Scenario
    theory: str = "exact"
    small_stepsize: bool = False

    @cached_property
    def model(self) -> Model:
        """The scenario as the theory sees it."""
        return Model(self.scenario, self.theory, self.small_stepsize)

    @cached_property
    def solver(self) -> Solver:
        """What solves the model."""
        return Solver(self.model)

    @cached_property
    def is_stable(self) -> bool:
        """Whether all second moments stay bounded."""
        check_stepsize(self.model, self.scenario.stepsize)
        return self.solver.is_stable(self.scenario.stepsize)

    @property
    def network_mse(self) -> float:
        """Steady-state network MSE, (1/K) Σ_k E[ε_k²], the observation noise included."""
        terms = self.terms
        return terms.data + terms.attack + terms.noise + terms.drift + terms.targets

    @property
    def server_msd(self) -> float:
        """Steady-state E‖w_n − w*‖² at the server."""
        return self.steady_state.total.server

    @property
    def test_mse(self) -> float:
        """Steady-state MSE of the server on its test set."""
        return test_mse_of(self.model, self.server_msd)

    @cached_property
    def evasion(self) -> "EvasionPrediction | None":
        """What is predicted of the server's error on inputs moved to hurt most; None without ``[evasion]``."""
        from psofed.theory.evasion import predict_evasion

        return predict_evasion(self)

    @cached_property
    def terms(self) -> Terms:
        """The three terms of the network MSE."""
        noise = float(self.model.fleet.noise_variance.mean())
        state = self.steady_state
        return Terms(state.data.excess, state.attack.excess, noise, state.drift.excess, state.targets.excess)

    @cached_property
    def steady_state(self) -> SteadyState:
        """Both metrics by source; infinite where there is no steady state."""
        if self.is_stable:
            return self.solver.steady_state(self.scenario.stepsize)
        model, nothing, endless = self.model, Level(0.0, 0.0), Level(math.inf, math.inf)
        if model.clean is not model and self.solver.clean.is_stable(self.scenario.stepsize):
            return replace(self.solver.clean.steady_state(self.scenario.stepsize), attack=endless)
        return SteadyState(
            endless,
            endless if model.statement is not None else nothing,
            nothing,
            endless if model.walk else nothing,
            endless if model.clean.has_direction else nothing,
        )

    @cached_property
    def spectral_radius(self) -> float:
        """ρ(𝓕) of the recursion of second moments."""
        return self.solver.spectral_radius(self.scenario.stepsize)

    @cached_property
    def max_stepsize(self) -> float:
        """Below it the mean square is bounded: the true limit (exact), or the paper's bound (rhoFcond)."""
        bound = mean_square_stepsize_bound(self.model.fleet)
        return bound if self.theory == "paper" else stability_limit(self.solver.growth, bound)

    @cached_property
    def mean_max_stepsize(self) -> float:
        """Below it the mean converges, (cond); sufficient, and the same in both theories."""
        return mean_stepsize_bound(self.model.fleet)

    @cached_property
    def optimal_stepsize(self) -> float:
        """The stepsize with the lowest predicted network MSE; 0 without an attack and a target that walks."""
        from psofed.theory.stepsize import optimal_stepsize

        return optimal_stepsize(self.scenario, self.theory)

    def learning_curve(self, iterations: int | None = None) -> LearningCurve:
        """Predict the metrics over the iterations, from models that are all zero.

        Parameters
        ----------
        iterations : int, optional
            How many; the scenario's own by default.
        """
        excess, server = self.solver.curve(self.scenario.stepsize, iterations or self.scenario.iterations)
        noise = float(self.model.fleet.noise_variance.mean())
        test = self.scenario.data.test_input_variance * server + self.model.fleet.test_noise_variance
        return LearningCurve(excess + noise, server, test)

    def report(self) -> Report:
        """Return the steady state, what contributes to it, the stepsizes, and what to try next."""
        from psofed.theory.reports import prediction_report

        return prediction_report(self)

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
            frames = [
                pandas.DataFrame({"iteration": np.arange(values.size), "metric": metric, "value": values})
                for metric in METRIC_TITLES
                for values in [getattr(curve, metric)]
            ]
            return pandas.concat(frames, ignore_index=True)
        values = {metric: getattr(self, metric) for metric in METRIC_TITLES}
        values |= {f"network_mse from {name}": value for name, value in asdict(self.terms).items()}
        return pandas.DataFrame({"metric": list(values), "value": list(values.values())})

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and numbers; what is infinite (an unstable steady state) is None."""
        values = {
            "network_mse": self.network_mse,
            "server_msd": self.server_msd,
            "test_mse": self.test_mse,
            "terms": {"data": self.terms.data, "attack": self.terms.attack, "noise": self.terms.noise}
            | ({"drift": self.terms.drift} if self.model.walk else {})
            | ({"targets": self.terms.targets} if self.model.clean.has_direction else {}),
            "spectral_radius": self.spectral_radius,
            "max_stepsize": self.max_stepsize,
            "mean_max_stepsize": self.mean_max_stepsize,
            "optimal_stepsize": self.optimal_stepsize,
            "theory": self.theory,
            "scenario": self.scenario.to_mapping(),
        }
        if self.scenario.evasion is not None:
            values["evasion"] = self._evasion_to_json()
        cleaned: dict[str, Any] = finite_or_none(values)
        return cleaned

    def _evasion_to_json(self) -> dict[str, Any]:
        try:
            return {} if self.evasion is None else self.evasion.to_json()
        except NotCoveredError as error:
            return {"not_covered": str(error)}


@takes(PredictionSettings)
def predict(scenario: Scenario | str | Path, settings: PredictionSettings) -> Prediction:
    """Predict what simulating a scenario will show; :func:`psofed.predict_stepsizes` does it for many stepsizes.

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


def test_mse_of(model: Model, server_msd: float) -> float:
    """MSE of the server on white test inputs: their variance times the MSD, plus the mean observation noise.

    NaN where test inputs become features, whose covariance is another than the identity.
    """
    if not model.scenario.is_linear:
        return math.nan
    return model.scenario.data.test_input_variance * server_msd + model.fleet.test_noise_variance


test_mse_of.__test__ = False  # type: ignore[attr-defined]
