"""Bounds the server's error on inputs that are moved to hurt most.

With e ~ N(0, s²) given the server's model w, the mean square is E[s²] + 2 √(2/π) ε E[s‖w‖] + ε² E‖w‖². For the 2-norm
the first and the last term follow exactly from the second moments: E[s²] is the test MSE, and with a model that is
unbiased E‖w‖² = ‖w*‖² + MSD. The middle term is a mean of a product of roots, which second moments only bound:

    σ_ν ‖w*‖ ≤ E[s‖w‖] ≤ √(E[s²] E‖w‖²)

(s ≥ σ_ν and Jensen on one side, Cauchy and Schwarz on the other). Where the model varies little both are close.
ε = ``evasion.epsilon``, E[s²] = ``error``, ε² E‖w‖² = ``reach``.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psofed.common.errors import NotCoveredError

if TYPE_CHECKING:
    from psofed.theory.prediction import Prediction


@dataclass(frozen=True)
class EvasionPrediction:
    """Bounds on the server's mean square error on inputs moved to hurt most.

    Attributes
    ----------
    error : float
        E[s²], the test MSE; exact.
    reach : float
        ε² E‖w‖², the square of the most that moving an input can add; exact.
    lower, upper : float
        Bounds on the mean square error on moved inputs.
    """

    error: float
    reach: float
    lower: float
    upper: float

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {"error": self.error, "reach": self.reach, "test_mse_interval": [self.lower, self.upper]}


def predict_evasion(prediction: "Prediction") -> EvasionPrediction | None:
    """Return the bounds; None if the scenario asks for none.

    Raises
    ------
    NotCoveredError
        For the ∞-norm, whose dual second moments do not give; for attacks and fleets that bias the model; and where
        the model is not linear or its target moves.
    """
    scenario, model = prediction.scenario, prediction.model
    evasion = scenario.evasion
    if evasion is None:
        return None
    if evasion.norm != "2":
        raise NotCoveredError('evasion.norm = "inf" can only be simulated: second moments do not give E‖w‖₁²')
    if not scenario.is_linear or scenario.drift is not None or scenario.data.rows is not None:
        raise NotCoveredError("[evasion] is predicted for linear streams whose target stays where it is")
    if model.has_direction or model.clean.has_direction:
        raise NotCoveredError(
            "[evasion] is predicted for models without bias; this attack or these targets bias them"
        )
    error, target = prediction.test_mse, math.sqrt(float((model.fleet.target**2).sum()))
    noise = math.sqrt(model.fleet.test_noise_variance)
    length = target**2 + prediction.server_msd
    outer = error + evasion.epsilon**2 * length
    factor = 2 * math.sqrt(2 / math.pi) * evasion.epsilon
    return EvasionPrediction(
        error=error,
        reach=evasion.epsilon**2 * length,
        lower=outer + factor * noise * target,
        upper=outer + factor * math.sqrt(error * length),
    )
