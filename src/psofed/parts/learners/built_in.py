"""The built-in learners."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Learner, option
from psofed.parts.affine import LinearLearner
from psofed.parts.contexts import Observation, Residual


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


class LeakyLMS(LMS):
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

    def keep(self, stepsize: float) -> float:
        """Return 1 − μγ."""
        return 1.0 - stepsize * self.leakage

    def linear(self) -> LinearLearner:
        """State the step's options."""
        return LinearLearner(leakage=self.leakage)


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


class RLS(Learner):
    """Recursive least squares: v + k e with k = Px / (λ + xᵀPx), then P ← (P − k xᵀP)/λ, from P₀ = I/δ.

    `forgetting` is λ: a sample that is j iterations old counts λʲ. `initial` is δ. The stepsize is not used. Every
    client keeps its P, D² numbers, and a step costs O(D²).

    Notes
    -----
    P stays symmetric to the last bit, because k xᵀP is computed as (Px)_i (Px)_j / (λ + xᵀPx). Otherwise its halves
    would drift apart by rounding, and for λ < 1 the difference grows like λ⁻ⁿ until the recursion diverges.

    References
    ----------
    Haykin, *Adaptive Filter Theory*, 4th ed. 2002, table 9.1.
    Verhaegen, "Round-off error propagation in four generally-applicable, recursive, least-squares estimation schemes",
    Automatica 25(3), 1989.
    """

    forgetting: float = option(default=0.99, low=0.0, high=1.0, open_low=True, text="weight kept per iteration (λ)")
    initial: float = option(
        default=0.01, low=0.0, open_low=True, text="initial P₀ = I/δ (δ); small values trust the first samples more"
    )

    def initial_memory(self, dimension: int) -> FloatArray:
        """Return P₀ = I/δ, row by row, and D numbers of scratch for Px."""
        return np.concatenate([(np.eye(dimension) / self.initial).ravel(), np.zeros(dimension)])

    def memory_size(self, dimension: int) -> int:
        """Return D² + D, without making the matrix."""
        return dimension * (dimension + 1)

    def learn(self, observation: Observation, memory: FloatArray, out: FloatArray) -> None:
        """Write k e into ``out`` and advance P."""
        x, size = observation.inputs, out.size
        product = size * size  # where Px begins
        for i in range(size):
            memory[product + i] = 0.0
        for j in range(size):
            for i in range(size):
                memory[product + i] += memory[j * size + i] * x[j]
        denominator = self.forgetting
        for i in range(size):
            denominator += x[i] * memory[product + i]
        share, weight = 1.0 / denominator, 1.0 / self.forgetting
        for i in range(size):
            out[i] = memory[product + i] * share * observation.error
            for j in range(size):
                outer = memory[product + i] * memory[product + j] * share
                memory[i * size + j] = (memory[i * size + j] - outer) * weight
