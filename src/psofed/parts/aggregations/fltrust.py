"""FLTrust."""

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.contexts import Updates
from psofed.parts.vectors import TINY, add_scaled, inner, keep_where, length, part_of, scale


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
