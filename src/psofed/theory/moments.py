"""The second moments both theories propagate, and how they are laid out in memory.

Errors are w̃ = w* − w. After the download of iteration n the server holds g and client k holds v_k; whether k
participates is a_k. All that is needed of their joint distribution are second moments *given participation*:

====== ============================== ===========
name   meaning                        shape
====== ============================== ===========
server E[g gᵀ]                        (E,)
cross1 E[g v_kᵀ | a_k = 1]            (K, E)
cross0 E[g v_kᵀ | a_k = 0]            (K, E)
own1   E[v_k v_kᵀ | a_k = 1]          (K, E)
own0   E[v_k v_kᵀ | a_k = 0]          (K, E)
both   E[v_k v_lᵀ | a_k = 1, a_l = 1] (K, K, E)
one    E[v_k v_lᵀ | a_k = 1, a_l = 0] (K, K, E)
none   E[v_k v_lᵀ | a_k = 0, a_l = 0] (K, K, E)
====== ============================== ===========

The last axis runs over the entries (i, j) of the D × D blocks that are tracked (see :class:`Entries`). The
pair arrays have zeros where k = l; those moments are ``own1`` and ``own0``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray


@dataclass(frozen=True)
class Participation:
    """Probabilities of a uniformly drawn set of |S_n| of K clients.

    Attributes
    ----------
    clients, participants : int
        K and |S_n|.
    single : float
        E[a_k] = p_c.
    pair : float
        E[a_k a_l], k ≠ l: p_c (|S_n| − 1)/(K − 1) (Appendix A); 0 for a single client.

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
        """E[a_k a_l], k ≠ l."""
        return self.single * (self.participants - 1) / (self.clients - 1) if self.clients > 1 else 0.0

    @property
    def only_first(self) -> float:
        """E[a_k (1 − a_l)], k ≠ l."""
        return self.single - self.pair

    @property
    def neither(self) -> float:
        """E[(1 − a_k)(1 − a_l)], k ≠ l."""
        return 1.0 - 2.0 * self.single + self.pair


@dataclass(frozen=True, eq=False)
class Entries:
    """Which entries (i, j) of every D × D block are tracked.

    With white inputs only the diagonals i = j matter, and those whose masks have the same law are one entry,
    counted `multiplicity` times in a trace. With correlated inputs all D² entries are tracked, row by row.

    Attributes
    ----------
    size : int
        E, the number of tracked entries.
    dimension : int
        D.
    multiplicity : float
        How many diagonal entries each tracked one stands for (white inputs).
    transpose : array of int (E,) or None
        Where entry (j, i) of entry (i, j) is; None if all are diagonal.
    diagonal : array (E,)
        1 where i = j.
    shift : int
        Round-robin masks over white inputs: entries are labelled by their place in the moving window, so each
        iteration relabels entry e as e − `shift`.
    kinds : int
        V: how many different values a vector's entries take on one tracked entry (white inputs). All entries of the
        target are alike in most fleets (V = 1); clients with targets of their own make V = D.

    First moments have the shape F = (E, V) over white inputs, and (D,) where all of a block is tracked.
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

    def flip(self, blocks: FloatArray) -> FloatArray:
        """Transpose every D × D block."""
        return blocks if self.transpose is None else blocks[..., self.transpose]

    def flip_pairs(self, pairs: FloatArray) -> FloatArray:
        """Return the array whose (k, l) block is the transposed (l, k) block."""
        return self.flip(pairs.swapaxes(0, 1))

    def roll(self, blocks: FloatArray) -> FloatArray:
        """Relabel entries at the end of an iteration (round-robin masks over white inputs)."""
        return np.roll(blocks, -self.shift, axis=-1) if self.shift else blocks

    @property
    def first_shape(self) -> tuple[int, ...]:
        """F, the shape of one vector's first moment."""
        return (self.dimension,) if self.is_full else (self.size, self.kinds)

    def vector(self, values: float | FloatArray) -> FloatArray:
        """Lay out vectors (…, D), or one number for all entries, as first moments (…, F)."""
        array = np.asarray(values, dtype=np.float64)
        if self.is_full:
            return np.broadcast_to(array, (*array.shape[:-1], self.dimension))
        if array.ndim == 0 or self.kinds == 1:
            array = array if array.ndim == 0 else array[..., :1]
            return np.broadcast_to(
                array[..., None, :] if array.ndim else array, (*array.shape[:-1], *self.first_shape)
            )
        return np.broadcast_to(array[..., None, :], (*array.shape[:-1], *self.first_shape))

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

    def trace(self, blocks: FloatArray) -> FloatArray:
        """Return the trace of every block."""
        return np.asarray(self.multiplicity * (blocks @ self.diagonal))

    def trace_over(self, blocks: FloatArray) -> FloatArray:
        """Return the trace of every block, once for each tracked entry (white inputs).

        With one tracked entry the last axis may also hold several states side by side.
        """
        if self.size == 1:
            return np.asarray(self.multiplicity * blocks)
        return self.trace(blocks)[..., None]


@dataclass(frozen=True, eq=False)
class ClientMoments:
    """Moments of the server and of single clients; see the module's table."""

    server: FloatArray
    cross1: FloatArray
    cross0: FloatArray
    own1: FloatArray
    own0: FloatArray

    def pack(self) -> FloatArray:
        """Return all numbers as one vector."""
        return np.concatenate(
            [self.server, *(x.ravel() for x in (self.cross1, self.cross0, self.own1, self.own0))]
        )

    def plus(self, block: FloatArray) -> "ClientMoments":
        """Add the same block (E,) to all moments: what a common move of all errors does."""
        cross1, cross0, own1, own0 = (x + block for x in (self.cross1, self.cross0, self.own1, self.own0))
        return ClientMoments(self.server + block, cross1, cross0, own1, own0)

    @classmethod
    def unpack(cls, vector: FloatArray, clients: int, entries: int) -> "ClientMoments":
        """Undo :meth:`pack`; the fields are views."""
        blocks = vector[entries:].reshape(4, clients, entries)
        return cls(vector[:entries], blocks[0], blocks[1], blocks[2], blocks[3])

    @staticmethod
    def length(clients: int, entries: int) -> int:
        """Length of the packed vector."""
        return entries * (1 + 4 * clients)

    def mixed(self, drawn: Participation) -> "ClientMoments":
        """Forget who downloaded: what matters when the upload set is drawn afresh."""
        p = drawn.single
        cross = p * self.cross1 + (1 - p) * self.cross0
        own = p * self.own1 + (1 - p) * self.own0
        return ClientMoments(self.server, cross, cross, own, own)


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Moments of pairs of different clients; see the module's table."""

    both: FloatArray
    one: FloatArray
    none: FloatArray

    def pack(self) -> FloatArray:
        """Return all numbers as one vector."""
        return np.concatenate([self.both.ravel(), self.one.ravel(), self.none.ravel()])

    @classmethod
    def unpack(cls, vector: FloatArray, clients: int, entries: int) -> "PairMoments":
        """Undo :meth:`pack`; the fields are views."""
        blocks = vector.reshape(3, clients, clients, entries)
        return cls(blocks[0], blocks[1], blocks[2])

    @staticmethod
    def length(clients: int, entries: int) -> int:
        """Length of the packed vector."""
        return 3 * clients * clients * entries

    def average(self, drawn: Participation, entries: Entries) -> FloatArray:
        """E[v_k v_lᵀ], whoever participates."""
        one = self.one + entries.flip_pairs(self.one)
        return drawn.pair * self.both + drawn.only_first * one + drawn.neither * self.none

    def mixed(self, drawn: Participation, entries: Entries) -> "PairMoments":
        """Forget who downloaded: what matters when the upload set is drawn afresh."""
        average = self.average(drawn, entries)
        return PairMoments(average, average, average)


@dataclass(frozen=True, eq=False)
class UploadSums:
    """The two sums over other clients through which pairs act on everything else.

    A_k is the factor of z_k in what the server receives from client k: 1 from an honest one.

    Attributes
    ----------
    anyone : array (K, E)
        Σ_{k≠l} E[b_k A_k z_k z_lᵀ] for every l; b says who uploads.
    uploader : array (K, E)
        Σ_{m≠l} E[b_l b_m A_l A_m z_l z_mᵀ] for every l.
    """

    anyone: FloatArray
    uploader: FloatArray

    def pack(self) -> FloatArray:
        """Return all numbers as one vector."""
        return np.concatenate([self.anyone.ravel(), self.uploader.ravel()])

    @classmethod
    def unpack(cls, vector: FloatArray, clients: int, entries: int) -> "UploadSums":
        """Undo :meth:`pack`; the fields are views."""
        blocks = vector.reshape(2, clients, entries)
        return cls(blocks[0], blocks[1])
