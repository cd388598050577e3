"""Normalised LMS."""

from psofed.parts import Learner, option
from psofed.parts.affine import LinearLearner
from psofed.parts.contexts import Residual


class NLMS(Learner):
    """Normalised LMS: v + μ x e / (ε + ‖x‖²), whose stability does not depend on the inputs' power (0 < μ < 2).

    `regularisation` is ε. A sample with ε + ‖x‖² = 0 changes nothing.

    References
    ----------
    Nagumo, Noda, "A learning method for system identification", IEEE Trans. Automatic Control 12(3), 1967.

    Examples
    --------
    >>> NLMS().gain(Residual(error=2.0, power=4.0, stepsize=0.5, client=0, iteration=0)) < 0.25
    True
    """

    regularisation: float = option(default=1e-6, low=0.0, text="added to the inputs' squared length (ε)")

    def gain(self, residual: Residual) -> float:
        """Return μ e / (ε + ‖x‖²)."""
        power = self.regularisation + residual.power
        return residual.stepsize * residual.error / power if power > 0.0 else 0.0

    def linear(self) -> LinearLearner:
        """State the step's options."""
        return LinearLearner(regularisation=self.regularisation)
