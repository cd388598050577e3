"""Bucketing."""

from psofed.common.types import FloatArray
from psofed.parts import PreAggregation, option
from psofed.parts.contexts import AllUpdates
from psofed.parts.vectors import part_of, ranks


class Bucketing(PreAggregation):
    """Bucketing: participants are shuffled and put into buckets of a few; each bucket sends one mean update.

    In each iteration a fresh random order of all P participants is cut into ⌈P/size⌉ buckets of `size` (the last may
    be smaller), and the rule is applied to the buckets' means. Means differ less than their members, so a rule that
    picks or votes does less harm where clients differ; but one attacker spoils a bucket. With size = 1 nothing
    changes. A member that sent nothing counts with the server's own value, so where the buckets are equally large the
    mean of the buckets is the mean of all.

    References
    ----------
    Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.

    Examples
    --------
    The third participant's random number is the lowest, then the first's.

    >>> import numpy as np
    >>> from psofed.parts.plain import mix_uploads
    >>> uploads, uniforms = np.array([[1.0], [2.0], [9.0]]), np.array([0.4, 0.8, 0.1])
    >>> mix_uploads(Bucketing(size=2), uploads, np.zeros(1), uniforms=uniforms)
    array([[5.],
           [2.]])
    """

    size: int = option(default=2, low=1, text="number of updates averaged in a bucket (s)")

    def uploads_after(self, participants: int) -> int:
        """Return the number of buckets."""
        return -(-participants // self.size)

    def weigh(self, updates: AllUpdates, out: FloatArray) -> None:
        """Weigh the members of a bucket equally."""
        count = updates.changes.shape[0]
        order = part_of(updates.scratch, 0, (count,))
        ranks(updates.uniforms, updates.uniforms, order)
        for p in range(count):
            bucket = int(order[p]) // self.size
            out[bucket, p] = 1.0 / min(self.size, count - bucket * self.size)
