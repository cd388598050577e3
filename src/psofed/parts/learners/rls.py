"""Recursive least squares."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Learner, option
from psofed.parts.contexts import Observation


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

    forgetting: float = option(
        default=0.99, low=0.0, high=1.0, open_low=True, text="weight that a sample keeps per iteration (λ)"
    )
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
