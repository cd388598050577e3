"""Recursive least squares."""

import numpy as np

from psofed.common.options import option
from psofed.common.types import FloatArray
from psofed.parts.base import Learner
from psofed.parts.contexts import Observation


class RLS(Learner):
    """Recursive least squares: v + k e with k = Px / (λ + xᵀPx), then P ← (P − k xᵀP)/λ, from P₀ = I/δ.

    `forgetting` is λ: a sample that is j iterations old counts λʲ. `initial` is δ. The stepsize is not used. Every
    client keeps its P, D² numbers, and a step costs O(D²).

    Notes
    -----
    P is symmetric, so its lower half is copied from the upper one. Computed separately, the halves would drift apart by
    rounding, and for λ < 1 the difference grows like λ⁻ⁿ until the recursion diverges.

    References
    ----------
    Haykin, *Adaptive Filter Theory*, 4th ed. 2002, table 9.1.
    Verhaegen, "Round-off error propagation in four generally-applicable, recursive, least-squares estimation schemes",
    Automatica 25(3), 1989.
    """

    forgetting: float = option(
        default=0.99, low=0.0, high=1.0, open_low=True, text="λ, weight that a sample keeps per iteration"
    )
    initial: float = option(
        default=0.01, low=0.0, open_low=True, text="δ in P₀ = I/δ; small values trust the first samples more"
    )

    def initial_memory(self, dimension: int) -> FloatArray:
        """Return P₀ = I/δ, row by row, and D numbers of scratch for Px."""
        return np.concatenate([(np.eye(dimension) / self.initial).ravel(), np.zeros(dimension)])

    def learn(self, observation: Observation, memory: FloatArray, out: FloatArray) -> None:
        """Write k e into ``out`` and advance P."""
        x, size = observation.inputs, out.size
        product = size * size  # where Px begins
        denominator = self.forgetting
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += memory[i * size + j] * x[j]
            memory[product + i] = total
            denominator += x[i] * total
        for i in range(size):
            k = memory[product + i] / denominator
            out[i] = k * observation.error
            for j in range(i, size):
                entry = (memory[i * size + j] - k * memory[product + j]) / self.forgetting
                memory[i * size + j] = entry
                memory[j * size + i] = entry
