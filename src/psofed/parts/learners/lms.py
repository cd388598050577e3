"""Least mean squares."""

from psofed.parts import Learner
from psofed.parts.affine import LinearLearner
from psofed.parts.contexts import Residual


class LMS(Learner):
    """LMS: v + μ x e, the paper's local step.

    References
    ----------
    Widrow, Hoff, "Adaptive switching circuits", IRE WESCON 1960.
    """

    def gain(self, residual: Residual) -> float:
        """Return μ e."""
        return residual.stepsize * residual.error

    def linear(self) -> LinearLearner:
        """State the step's options."""
        return LinearLearner()
