"""The shape in which an attack states its moments to the theory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PerturbationMoments:
    """Moments of the perturbations τ_k δ_k of one uploaded entry; entries and iterations are independent.

    Attributes
    ----------
    mean : array (K,)
        E[τ_k δ_k]; not zero for a biased attack.
    second : array (K,)
        E[(τ_k δ_k)²].
    common : array (K,)
        c with E[τ_k δ_k τ_l δ_l] = c_k c_l for k ≠ l; not zero for a colluding attack.
    """

    mean: NDArray[np.float64]
    second: NDArray[np.float64]
    common: NDArray[np.float64]

    @property
    def is_independent(self) -> bool:
        """Whether perturbations have mean zero and are independent between clients."""
        return not (np.any(self.mean) or np.any(self.common))
