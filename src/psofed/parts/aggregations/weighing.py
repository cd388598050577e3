"""Rules that weigh the updates."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.contexts import Updates
from psofed.parts.vectors import (
    TINY,
    add_scaled,
    clear,
    distance,
    inner,
    keep_where,
    length,
    middle,
    middle_of_each,
    part_of,
    scale,
)

# Far more than is ever needed; a bound, so that no input can keep the server busy.
_MOST_STEPS = 1000


class GeometricMedian(Aggregation):
    """Geometric median: the server moves towards the point whose distances to the updates sum up least.

    Smoothed Weiszfeld iteration on the updates u_k of those who answered, from the median of each entry,

        z ← Σ_k β_k u_k / Σ_k β_k,    β_k = 1 / max(smoothing, ‖u_k − z‖)

    until a step is shorter than `tolerance` times the updates' median distance from z. The server moves by
    P'/|S_n| · z. A smoothing far above all distances gives the mean.

    References
    ----------
    Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[1.0, 1.0], [1.0, 1.0], [9.0, -9.0]])
    >>> combine_uploads(GeometricMedian(), changes, np.zeros(2)).round(3)
    array([1., 1.])
    """

    over = "vectors"

    smoothing: float = option(
        default=1e-3, low=0.0, open_low=True, text="smallest distance used; shorter ones are raised to it"
    )
    tolerance: float = option(
        default=1e-3, low=1e-12, text="stop when a step is shorter than this many median distances"
    )

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Iterate until it stands still."""
        changes, scratch = updates.changes, updates.scratch
        count, size = changes.shape
        distances, following = part_of(scratch, 0, (count,)), part_of(scratch, count, (size,))
        middle_of_each(changes, distances, out)
        for _ in range(_MOST_STEPS):
            clear(following)
            total = 0.0
            for p in range(count):
                distances[p] = distance(changes[p], out)
                weight = 1.0 / max(self.smoothing, distances[p])
                total += weight
                add_scaled(weight, changes[p], following)
            step = 0.0
            for i in range(size):
                step += (following[i] / total - out[i]) ** 2
            clear(out)
            add_scaled(1.0 / total, following, out)
            if math.sqrt(step) <= self.tolerance * max(middle(distances), self.smoothing):
                break


class FLTrust(Aggregation):
    """FLTrust: the server learns from a small root set, and trusts updates that point the same way.

    The server's own step on its root set is u_0 = μ/N Σ_r x_r (y_r − x_rᵀ w_n). With u_k the update of participant k,
    and u_0 taken on the entries that k sent, its trust is t_k = max(0, cos(u_k, u_0)), and its update is brought to the
    length of u_0 there. The server moves by

        P'/|S_n| · Σ_k t_k u_k ‖u_0‖/‖u_k‖ / Σ_k t_k

    and stays where it is if nobody is trusted. The N = `root_size` samples are drawn once per trial, from a stream of
    randomness of their own, as the test set is: white inputs of the test inputs' variance, noise of the fleet's
    average. If the target drifts, they stay as they were drawn: what the server knows grows old.

    With M = 1 an update has but a sign: those who agree with the server's own step are all brought to exactly that
    step, so the clients only vote on whether the server follows its own data.

    References
    ----------
    Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021.

    Examples
    --------
    The server's data say that entry 0 should grow by 0.5; the second participant says the contrary.

    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> combine_uploads(FLTrust(), np.array([[3.0], [-1.0]]), np.zeros(1), own_step=np.array([0.5]))
    array([0.5])
    """

    kind = "fltrust"
    over = "vectors"
    has_root_data = True

    root_size: int = option(default=100, low=1, text="number of samples the server holds (N)")

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Average the trusted updates, each at the length of the server's own step."""
        changes, trusts = updates.changes, 0.0
        count, size = changes.shape
        own = part_of(updates.scratch, 0, (size,))
        for p in range(count):
            keep_where(updates.own_step, updates.shared[p], own)
            product, own_length, its_length = inner(changes[p], own), length(own), length(changes[p])
            trust = max(0.0, product) / max(its_length * own_length, TINY)
            add_scaled(trust * own_length / max(its_length, TINY), changes[p], out)
            trusts += trust
        if trusts > 0.0:
            scale(1.0 / trusts, out)
