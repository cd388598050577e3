"""First moments: what attacks with a direction, and clients with targets of their own, need besides second ones."""

from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments import Participation


@dataclass(frozen=True, eq=False)
class FirstMoments:
    """E[g], E[v_k | a_k = 1] and E[v_k | a_k = 0]; F is the shape of one vector (:class:`~.moments.Entries`).

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
        """Forget who downloaded: what matters when the upload set is drawn afresh."""
        average = self.average(drawn)
        return FirstMoments(self.server, average, average)

    def average(self, drawn: Participation) -> FloatArray:
        """E[v_k], whoever participates."""
        return drawn.single * self.taking + (1 - drawn.single) * self.idle

    def pack(self) -> FloatArray:
        """Return all numbers as one vector."""
        return np.concatenate([self.server.ravel(), self.taking.ravel(), self.idle.ravel()])

    @classmethod
    def unpack(cls, vector: FloatArray, clients: int, shape: tuple[int, ...]) -> "FirstMoments":
        """Undo :meth:`pack`; the fields are views."""
        size = int(np.prod(shape))
        blocks = vector[size:].reshape(2, clients, *shape)
        return cls(vector[:size].reshape(shape), blocks[0], blocks[1])
