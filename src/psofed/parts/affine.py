"""Statements of parts to the theory: affine uploads, poisoned samples, linear steps.

The theory is exact for attacks that are affine in the models. Such an attack says so by returning one of these two
values; one that returns neither is refused by name. Only numbers are stated here: who attacks, and how often, is
the theory's business (:mod:`psofed.theory.law`). NumPy alone is imported.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Affine:
    """An attacked number is own · u + server · w + offset + N(0, variance) + N(0, common_variance).

    Here u is the number as the client would have uploaded it, and w the server's own number before the upload.

    Attributes
    ----------
    own, server : float
        Factors of the client's clean upload and of the server's number. Honest is (1, 0).
    offset : float or array (D,)
        Constant, the same in every iteration.
    variance : float or array (D, D)
        Of noise independent over clients and iterations: a number if it is independent over entries, too, else its
        covariance.
    common_variance : float or array (D, D)
        Likewise of noise that all attackers of an iteration share.
    is_lost : bool
        Whether nothing arrives, which counts as the server's own number, so that a channel adds nothing to it.

    Examples
    --------
    >>> Affine(own=-2.0, server=3.0).is_additive  # w − 2 (u − w): an update turned round and doubled
    False
    >>> Affine(variance=0.5).is_additive
    True
    """

    own: float = 1.0
    server: float = 0.0
    offset: float | NDArray[np.float64] = 0.0
    variance: float | NDArray[np.float64] = 0.0
    common_variance: float | NDArray[np.float64] = 0.0
    is_lost: bool = False

    @property
    def is_additive(self) -> bool:
        """Whether the attack only adds noise of mean zero that is independent between clients (assumption A2)."""
        pulls = np.any(self.offset) or np.any(self.common_variance)
        return self.own == 1.0 and self.server == 0.0 and not pulls

    @property
    def is_isotropic(self) -> bool:
        """Whether the attack only adds noise that is independent between clients and entries."""
        return self.is_additive and np.ndim(self.variance) == 0


@dataclass(frozen=True)
class PoisonedSamples:
    """An attacker learns from (x + ξ, label · y) with ξ ~ N(0, input_noise_variance · I); it uploads honestly.

    Attributes
    ----------
    label : float
        Factor of the label y. Honest is 1.
    input_noise_variance : float
        Variance of ξ. Honest is 0.
    """

    label: float = 1.0
    input_noise_variance: float = 0.0


Statement = Affine | PoisonedSamples


@dataclass(frozen=True)
class LinearLearner:
    """A local step v + μ (x e / n(x) − γ v), with n(x) = 1 or ε + ‖x‖².

    Attributes
    ----------
    leakage : float
        γ.
    regularisation : float or None
        ε; None for n(x) = 1.
    """

    leakage: float = 0.0
    regularisation: float | None = None
