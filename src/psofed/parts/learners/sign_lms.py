"""Sign-error LMS."""

from psofed.parts import Learner
from psofed.parts.contexts import Residual


class SignLMS(Learner):
    """Sign-error LMS: v + μ x sign(e), which bounds what one outlier can do; sign(0) = 0.

    References
    ----------
    Gersho, "Adaptive filtering with binary reinforcement", IEEE Trans. Information Theory 30(2), 1984.

    Examples
    --------
    >>> SignLMS().gain(Residual(error=-7.0, power=1.0, stepsize=0.1, client=0, iteration=0))
    -0.1
    """

    def gain(self, residual: Residual) -> float:
        """Return μ sign(e)."""
        if residual.error > 0.0:
            return residual.stepsize
        if residual.error < 0.0:
            return -residual.stepsize
        return 0.0 * residual.error
