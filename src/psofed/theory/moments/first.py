"""First moments E[g], E[v_k | a_k = 1] and E[v_k | a_k = 0].

They are needed where something has a direction: attacks with an offset, poisoned samples, clients with their own
targets. Everything else has mean-zero errors in the steady state, and second moments suffice. Whoever participates,
E[v_k] = p_c E[v_k | a_k = 1] + (1 − p_c) E[v_k | a_k = 0], with p_c = ``drawn.single``, ``taking`` and ``idle``.
"""

from typing import NamedTuple

from psofed.common.types import FloatArray
from psofed.theory.moments.layout import Participation


class FirstMoments(NamedTuple):
    """First moments; F is the shape of one vector (:class:`~psofed.theory.moments.layout.Entries`).

    Attributes
    ----------
    server : array (F)
        E[g].
    taking, idle : array (K, F)
        E[v_k | a_k = 1], of a client that has just downloaded, and E[v_k | a_k = 0].
    """

    server: FloatArray
    taking: FloatArray
    idle: FloatArray

    def mixed(self, drawn: Participation) -> "FirstMoments":
        """Forget who downloaded, as it must be where the upload set is drawn independently."""
        average = self.average(drawn)
        return FirstMoments(self.server, average, average)

    def average(self, drawn: Participation) -> FloatArray:
        """E[v_k], whoever participates."""
        return drawn.mix(self.taking, self.idle)
