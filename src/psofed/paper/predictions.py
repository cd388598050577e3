"""Theory for the figures: every steady state solved once, however many points and figures show it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from threading import Event
from typing import cast

import numpy as np

from psofed.common.errors import PsofedError
from psofed.parts.attacks.gaussian import Gaussian
from psofed.scenario import Scenario
from psofed.studies.sweeps import Cell


@dataclass(frozen=True)
class PredictedPoint:
    """A theory's steady state at one scenario, linear.

    Attributes
    ----------
    data, attack, noise : float
        The terms E_φ, E_ω and E_Θ of the network MSE.
    server_msd, test_mse : float
        At the server.
    """

    data: float
    attack: float
    noise: float
    server_msd: float
    test_mse: float

    @property
    def network_mse(self) -> float:
        """The sum of the terms."""
        return self.data + self.attack + self.noise


def predict_point(scenario: Scenario, theory: str, small_stepsize: bool = False) -> PredictedPoint:
    """Predict a scenario with the Gaussian attack.

    Its perturbations have mean zero, so all that the attack adds is proportional to p_a σ_B². It is solved
    once for p_a σ_B² = 1 and scaled; length of the run and, for the paper's theory, uplink play no part.
    """
    attack = cast(Gaussian | None, scenario.attack)
    common = scenario.replace(iterations=1, uplink="same" if theory == "paper" else scenario.uplink)
    if attack is None or not attack.num_byzantine:
        return _solve(common.replace(attack=None), theory, small_stepsize).scaled(0.0)
    unit = common.replace(attack=Gaussian(num_byzantine=attack.num_byzantine, probability=1.0, variance=1.0))
    return _solve(unit, theory, small_stepsize).scaled(attack.probability * attack.variance)


def predict_ahead(cells: Iterable[Cell], stop: Event) -> None:
    """Solve what the figures made of these cells will ask for, until told to stop."""
    for cell in cells:
        if stop.is_set():
            return
        if cell.scenario.algorithm.holds_models:
            predict_point(cell.scenario, "exact")
            if cell.scenario.uplink == "redrawn":
                predict_point(cell.scenario, "paper")


def best_stepsize(scenario: Scenario, theory: str, grid: Iterable[float]) -> float:
    """Return the stepsize of the lowest predicted network MSE, between the neighbours of the best on a grid.

    At an end of the grid it is that end: no minimum inside.
    """
    from scipy.optimize import minimize_scalar

    def error(stepsize: float) -> float:
        return predict_point(scenario.replace(stepsize=float(stepsize)), theory).network_mse

    points = sorted(grid)
    best = int(np.argmin([error(point) for point in points]))
    if best in (0, len(points) - 1):
        return points[best]
    found = minimize_scalar(
        error, bounds=(points[best - 1], points[best + 1]), method="bounded", options={"xatol": 5e-4}
    )
    return float(found.x)


@dataclass(frozen=True)
class _UnitAttack:
    """The steady state by source, for an attack of p_a σ_B² = 1."""

    data: float
    attack: float
    noise: float
    server_data: float
    server_attack: float
    test_noise: float
    test_gain: float

    def scaled(self, strength: float) -> PredictedPoint:
        server = self.server_data + strength * self.server_attack
        test = self.test_noise + self.test_gain * server
        return PredictedPoint(self.data, strength * self.attack, self.noise, server, test)


@cache
def _solve(scenario: Scenario, theory: str, small_stepsize: bool) -> _UnitAttack:
    from psofed.theory.prediction import predict

    found = predict(scenario, theory=theory, small_stepsize=small_stepsize)
    if not _is_stable(
        scenario.replace(attack=None, stepsize=max(scenario.common_stepsize, 0.2)), theory, small_stepsize
    ):
        raise PsofedError(f"figures are made of stable stepsizes; {scenario.common_stepsize} is not")
    state, fleet = found.steady_state, found.model.fleet
    return _UnitAttack(
        data=state.data.excess,
        attack=state.attack.excess,
        noise=float(fleet.noise_variance.mean()),
        server_data=state.data.server,
        server_attack=state.attack.server,
        test_noise=fleet.test_noise_variance,
        test_gain=scenario.data.test_input_variance,
    )


@cache
def _is_stable(scenario: Scenario, theory: str, small_stepsize: bool) -> bool:
    """Whether a scenario is stable: asked at the largest stepsize of the axes, hence of all of them."""
    from psofed.theory.prediction import predict

    return predict(scenario, theory=theory, small_stepsize=small_stepsize).is_stable
