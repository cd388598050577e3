"""What is predicted for a scenario: steady state, learning curve, stability and the best stepsize."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.scenario import Scenario
from psofed.theory.models import Model
from psofed.theory.stability import mean_square_stepsize_bound, mean_stepsize_bound, stability_limit
from psofed.theory.steady import Solver, SteadyState


@dataclass(frozen=True)
class Terms:
    """The three terms of the steady-state network MSE (SSMSE).

    Attributes
    ----------
    data : float
        E_φ: the clients' observation noise, through the models.
    attack : float
        E_ω: the attack.
    noise : float
        E_Θ: the observation noise itself, the mean of σ_νk².
    drift : float
        The lag behind a target that walks; 0 if it stays where it is.
    """

    data: float
    attack: float
    noise: float
    drift: float = 0.0


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Predicted metrics at iterations 0 … n − 1, arrays (n,)."""

    network_mse: FloatArray
    server_msd: FloatArray
    test_mse: FloatArray


@dataclass(frozen=True, eq=False)
class Prediction:
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
        return self.solver.is_stable(self.scenario.stepsize)

    @property
    def network_mse(self) -> float:
        """Steady-state network MSE, (1/K) Σ_k E[ε_k²], the observation noise included."""
        terms = self.terms
        return terms.data + terms.attack + terms.noise + terms.drift

    @property
    def server_msd(self) -> float:
        """Steady-state E‖w_n − w*‖² at the server."""
        return self.steady_state.total.server if self.is_stable else math.inf

    @property
    def test_mse(self) -> float:
        """Steady-state MSE of the server on its test set."""
        return test_mse_of(self.model, self.server_msd)

    @cached_property
    def terms(self) -> Terms:
        """The three terms of the network MSE."""
        noise = float(self.model.fleet.noise_variance.mean())
        if not self.is_stable:
            attacked = bool(np.any(self.model.poison))
            walks = self.model.walk > 0
            return Terms(math.inf, math.inf if attacked else 0.0, noise, math.inf if walks else 0.0)
        state = self.steady_state
        return Terms(state.data.excess, state.attack.excess, noise, state.drift.excess)

    @cached_property
    def steady_state(self) -> SteadyState:
        """Both metrics by source."""
        return self.solver.steady_state(self.scenario.stepsize)

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

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and numbers; what is infinite (an unstable steady state) is None."""
        values = {
            "network_mse": self.network_mse,
            "server_msd": self.server_msd,
            "test_mse": self.test_mse,
            "terms": {"data": self.terms.data, "attack": self.terms.attack, "noise": self.terms.noise}
            | ({"drift": self.terms.drift} if self.model.walk else {}),
            "spectral_radius": self.spectral_radius,
            "max_stepsize": self.max_stepsize,
            "mean_max_stepsize": self.mean_max_stepsize,
            "optimal_stepsize": self.optimal_stepsize,
            "theory": self.theory,
            "scenario": self.scenario.to_mapping(),
        }
        return {name: _finite(value) for name, value in values.items()}


def predict(scenario: Scenario, theory: str = "exact", small_stepsize: bool = False) -> Prediction:
    """Predict what simulating a scenario will show.

    Parameters
    ----------
    scenario : Scenario
    theory : str
        ``"exact"``: the equations as simulated, nothing averaged apart. ``"paper"``: the paper's theory, which takes
        download and upload as independent.
    small_stepsize : bool
        Drop the terms of order μ² in 𝓕 (the paper's small-stepsize approximation; ``theory="paper"`` only).

    Returns
    -------
    Prediction

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import Gaussian
    >>> scenario = Scenario(num_clients=50, dimension=5, attack=Gaussian(num_byzantine=15))
    >>> round(predict(scenario).network_mse, 5), round(predict(scenario, theory="paper").network_mse, 5)
    (0.02585, 0.02529)
    """
    prediction = Prediction(scenario, theory, small_stepsize)
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


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
