"""Which moments are tracked: probabilities of participation, and the entries (i, j) of a D × D block.

A uniformly drawn set of s of K clients has, for k ≠ l,

    E[a_k] = s/K,    E[a_k a_l] = s (s − 1) / (K (K − 1)),

with K = ``clients`` and s = |S_n| = ``participants``.

Blocks such as E[v_k v_lᵀ] are stored as vectors of E tracked entries (i, j). With correlated inputs these are all D²
of them, row by row. With white inputs only the diagonal i = j matters, and entries whose masks have the same law
are equal, so that one of them stands for ``multiplicity`` others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray


@dataclass(frozen=True)
class Participation:
    """Probabilities of a uniformly drawn set of |S_n| of K clients.

    Parameters
    ----------
    clients, participants : int
        K and |S_n|.

    Examples
    --------
    >>> Participation(5, 2).single, round(Participation(5, 2).pair, 12)
    (0.4, 0.1)
    """

    clients: int
    participants: int

    @property
    def single(self) -> float:
        """E[a_k] = p_c."""
        return self.participants / self.clients

    @property
    def pair(self) -> float:
        """E[a_k a_l], k ≠ l (Appendix A); 0 for a single client."""
        return self.single * (self.participants - 1) / (self.clients - 1) if self.clients > 1 else 0.0

    @property
    def only_first(self) -> float:
        """E[a_k (1 − a_l)], k ≠ l."""
        return self.single - self.pair

    @property
    def neither(self) -> float:
        """E[(1 − a_k)(1 − a_l)], k ≠ l."""
        return 1.0 - 2.0 * self.single + self.pair

    def mix(self, given: FloatArray, otherwise: FloatArray) -> FloatArray:
        """E[X] = p_c E[X | a_k = 1] + (1 − p_c) E[X | a_k = 0]."""
        return np.asarray(self.single * given + (1 - self.single) * otherwise)


@dataclass(frozen=True, eq=False)
class Entries:
    """Tracked entries (i, j) of every D × D block.

    Attributes
    ----------
    size : int
        E, the number of tracked entries.
    dimension : int
        D.
    multiplicity : float
        Number of diagonal entries that each tracked one stands for (white inputs).
    transpose : array of int (E,) or None
        Position of entry (j, i) for each entry (i, j); None if all are diagonal.
    diagonal : array (E,)
        1 where i = j.
    shift : int
        Round-robin masks over white inputs: entries are labelled by their place in the moving window, so each
        iteration relabels entry e as e − `shift`.
    kinds : int
        V: number of different values that a vector takes within one tracked entry (white inputs). All entries of the
        target are alike in most fleets (V = 1); clients with their own targets make V = D.

    First moments have the shape F = (E, V) over white inputs, and (D,) where whole blocks are tracked.
    """

    size: int
    dimension: int
    multiplicity: float
    transpose: NDArray[np.intp] | None
    diagonal: FloatArray
    shift: int = 0
    kinds: int = 1

    @classmethod
    def white(cls, dimension: int, size: int, shift: int = 0, kinds: int = 1) -> "Entries":
        """Track `size` representative diagonal entries of `dimension`."""
        return cls(size, dimension, dimension / size, None, np.ones(size), shift, kinds)

    @classmethod
    def full(cls, dimension: int) -> "Entries":
        """Track all entries of every block."""
        index = np.arange(dimension * dimension).reshape(dimension, dimension)
        return cls(dimension**2, dimension, 1.0, index.T.ravel().copy(), np.eye(dimension).ravel())

    @property
    def is_full(self) -> bool:
        """Whether off-diagonal entries are tracked too."""
        return self.transpose is not None

    # Second moments, (…, E)

    def flip(self, blocks: FloatArray) -> FloatArray:
        """Transpose every D × D block."""
        return blocks if self.transpose is None else blocks[..., self.transpose]

    def flip_pairs(self, pairs: FloatArray) -> FloatArray:
        """Return the array whose (k, l) block is the transposed (l, k) block."""
        return self.flip(pairs.swapaxes(0, 1))

    def roll(self, blocks: FloatArray) -> FloatArray:
        """Relabel entries at the end of an iteration (round-robin masks over white inputs)."""
        return np.roll(blocks, -self.shift, axis=-1) if self.shift else blocks

    def trace(self, blocks: FloatArray) -> FloatArray:
        """Return the trace of every block."""
        return np.asarray(self.multiplicity * (blocks @ self.diagonal))

    def trace_over(self, blocks: FloatArray) -> FloatArray:
        """Return the trace of every block, repeated for each tracked entry (white inputs).

        With one tracked entry the last axis may also hold several states side by side.
        """
        if self.size == 1:
            return np.asarray(self.multiplicity * blocks)
        return self.trace(blocks)[..., None]

    # First moments, (…, F)

    @property
    def first_shape(self) -> tuple[int, ...]:
        """F, the shape of one vector's first moment."""
        return (self.dimension,) if self.is_full else (self.size, self.kinds)

    def vector(self, values: float | FloatArray) -> FloatArray:
        """Lay out vectors (…, D), or one number for all entries, as first moments (…, F)."""
        array = np.asarray(values, dtype=np.float64)
        if array.ndim and not self.is_full:
            array = (array[..., :1] if self.kinds == 1 else array)[..., None, :]
        lead = array.shape[: max(array.ndim - len(self.first_shape), 0)]
        return np.broadcast_to(array, (*lead, *self.first_shape))

    def outer(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return a bᵀ on the tracked entries, for first moments (…, F)."""
        if self.is_full:
            product = a[..., :, None] * b[..., None, :]
            return np.asarray(product.reshape(*product.shape[:-2], -1))
        return np.asarray((a * b).mean(axis=-1))

    def per_client(self, factors: FloatArray) -> FloatArray:
        """Shape factors (K,) so that they multiply first moments (K, F)."""
        return factors.reshape(-1, *(1 for _ in self.first_shape))

    def first_mask(self, row: FloatArray) -> FloatArray:
        """Return E[S(i)], given on the tracked entries (…, E), as it multiplies first moments."""
        if self.is_full:
            return row.reshape(*row.shape[:-1], self.dimension, self.dimension)[..., 0]
        return row[..., None]

    def roll_first(self, first: FloatArray) -> FloatArray:
        """Relabel first moments at the end of an iteration, as :meth:`roll` does blocks."""
        return np.roll(first, -self.shift, axis=-2) if self.shift else first
