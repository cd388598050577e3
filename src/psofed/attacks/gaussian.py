"""Byzantine clients add white Gaussian noise to what they upload."""

import numpy as np

from psofed.attacks._moments import PerturbationMoments
from psofed.scenario import Attack


def perturbation_moments(attack: Attack, num_clients: int) -> PerturbationMoments:
    """Return the moments of the perturbations τ_k δ_k of one uploaded entry.

    The first `num_byzantine` clients have E[(τδ)²] = p_a σ_B² (the diagonal of the paper's Ω_δ), with mean zero and
    independent between clients.

    Examples
    --------
    >>> perturbation_moments(Attack(num_byzantine=1, probability=0.5, variance=2.0), 2).second
    array([1., 0.])
    """
    byzantine = np.arange(num_clients) < attack.num_byzantine
    nothing = np.zeros(num_clients)
    return PerturbationMoments(nothing, byzantine * (attack.probability * attack.variance), nothing)
