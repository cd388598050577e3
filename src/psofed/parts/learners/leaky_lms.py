"""Leaky LMS."""

from psofed.parts import Learner, option
from psofed.parts.affine import LinearLearner
from psofed.parts.contexts import Residual


class LeakyLMS(Learner):
    """Leaky LMS: v + μ (x e − γ v), which pulls the model towards zero.

    `leakage` is γ. The leak bounds the model where inputs excite few directions, at the price of a bias.

    References
    ----------
    Mayyas, Aboulnasr, "Leaky LMS algorithm: MSE analysis for Gaussian data", IEEE Trans. Signal Processing 45(4), 1997.

    Examples
    --------
    >>> LeakyLMS(leakage=0.5).keep(stepsize=0.1)
    0.95
    """

    leakage: float = option(default=0.01, low=0.0, text="how strongly the model is pulled towards zero (γ)")

    def gain(self, residual: Residual) -> float:
        """Return μ e."""
        return residual.stepsize * residual.error

    def keep(self, stepsize: float) -> float:
        """Return 1 − μγ."""
        return 1.0 - stepsize * self.leakage

    def linear(self) -> LinearLearner:
        """State the step's options."""
        return LinearLearner(leakage=self.leakage)
