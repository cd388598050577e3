"""Theory for the figures: every steady state solved once, however many points and figures show it."""

from dataclasses import dataclass, replace
from functools import cache

from psofed.parts.attacks.gaussian import Gaussian
from psofed.scenario import Scenario


@dataclass(frozen=True)
class PredictedPoint:
    """A theory's steady state at one scenario, linear.

    Attributes
    ----------
    data, attack, noise : float
        The terms E_φ, E_ω and E_Θ of the network MSE.
    server_data, server_attack : float
        The terms of the server's MSD.
    test_noise, test_gain : float
        The test MSE is test_noise + test_gain · server_msd.
    """

    data: float
    attack: float
    noise: float
    server_data: float
    server_attack: float
    test_noise: float
    test_gain: float

    @property
    def network_mse(self) -> float:
        """The sum of the terms."""
        return self.data + self.attack + self.noise

    @property
    def server_msd(self) -> float:
        """The sum of the server's terms."""
        return self.server_data + self.server_attack

    @property
    def test_mse(self) -> float:
        """Error of the server's model on test data."""
        return self.test_noise + self.test_gain * self.server_msd


def predict_point(scenario: Scenario, theory: str, small_stepsize: bool = False) -> PredictedPoint:
    """Predict a scenario.

    Perturbations of the Gaussian attack have mean zero, so all that it adds is proportional to p_a σ_B². It is solved
    once for p_a σ_B² = 1 and scaled; length of the run and, for the paper's theory, uplink play no part.
    """
    attack = scenario.attack
    common = scenario.replace(iterations=1, uplink="same" if theory == "paper" else scenario.uplink)
    if not isinstance(attack, Gaussian):
        return _solve(common, theory, small_stepsize)
    if not attack.num_byzantine:
        return _solve(common.replace(attack=None), theory, small_stepsize)
    unit = Gaussian(num_byzantine=attack.num_byzantine, probability=1.0, variance=1.0)
    point = _solve(common.replace(attack=unit), theory, small_stepsize)
    strength = attack.probability * attack.variance
    return replace(point, attack=strength * point.attack, server_attack=strength * point.server_attack)


@cache
def _solve(scenario: Scenario, theory: str, small_stepsize: bool) -> PredictedPoint:
    from psofed.theory.prediction import predict

    prediction = predict(scenario, theory=theory, small_stepsize=small_stepsize)
    state, fleet = prediction.steady_state, prediction.model.fleet
    return PredictedPoint(
        data=state.data.excess,
        attack=state.attack.excess,
        noise=float(fleet.noise_variance.mean()),
        server_data=state.data.server,
        server_attack=state.attack.server,
        test_noise=fleet.test_noise_variance,
        test_gain=scenario.data.test_input_variance,
    )
