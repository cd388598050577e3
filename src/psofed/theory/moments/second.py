"""Second moments of server and clients, given participation.

Errors are w̃ = w* − w. After the download of iteration n the server holds g and client k holds v_k; a_k says whether k
participates. All that is needed of their joint distribution are second moments *given participation*:

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

The last axis runs over the tracked entries (:class:`~psofed.theory.moments.layout.Entries`). The pair arrays have
zeros where k = l; those moments are ``own1`` and ``own0``.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.layout import Entries, Participation

Moments = TypeVar("Moments", bound=tuple[Any, ...])


class ClientMoments(NamedTuple):
    """Moments of the server and of single clients; see the module's table."""

    server: FloatArray
    cross1: FloatArray
    cross0: FloatArray
    own1: FloatArray
    own0: FloatArray

    def map(self, function: Callable[[FloatArray], FloatArray]) -> "ClientMoments":
        """Apply a function to every moment."""
        return ClientMoments(*map(function, self))

    def mixed(self, drawn: Participation) -> "ClientMoments":
        """Forget who downloaded, as it must be where the upload set is drawn independently."""
        cross, own = drawn.mix(self.cross1, self.cross0), drawn.mix(self.own1, self.own0)
        return ClientMoments(self.server, cross, cross, own, own)

    @staticmethod
    def length(clients: int, entries: int) -> int:
        """Length of the packed vector."""
        return entries * (1 + 4 * clients)

    @classmethod
    def unpack(cls, vector: FloatArray, clients: int, entries: int) -> "ClientMoments":
        """Undo :func:`pack`; the fields are views."""
        return cls(vector[:entries], *vector[entries:].reshape(4, clients, entries))


class PairMoments(NamedTuple):
    """Moments of pairs of different clients; see the module's table."""

    both: FloatArray
    one: FloatArray
    none: FloatArray

    def map(self, function: Callable[[FloatArray], FloatArray]) -> "PairMoments":
        """Apply a function to every moment."""
        return PairMoments(*map(function, self))

    def average(self, drawn: Participation, entries: Entries) -> FloatArray:
        """E[v_k v_lᵀ], whoever participates."""
        one = self.one + entries.flip_pairs(self.one)
        return drawn.pair * self.both + drawn.only_first * one + drawn.neither * self.none

    def mixed(self, drawn: Participation, entries: Entries) -> "PairMoments":
        """Forget who downloaded, as it must be where the upload set is drawn independently."""
        average = self.average(drawn, entries)
        return PairMoments(average, average, average)


class UploadSums(NamedTuple):
    """The two sums over other clients through which pairs act on everything else.

    A_k is the factor of z_k in the upload of client k: 1 for an honest one.

    Attributes
    ----------
    anyone : array (K, E)
        Σ_{k≠l} E[b_k A_k z_k z_lᵀ] for every l; b says who uploads.
    uploader : array (K, E)
        Σ_{m≠l} E[b_l b_m A_l A_m z_l z_mᵀ] for every l.
    """

    anyone: FloatArray
    uploader: FloatArray


class MomentState(NamedTuple):
    """All second moments after the download of one iteration."""

    clients: ClientMoments
    pairs: PairMoments


def pack(moments: Iterable[Any]) -> FloatArray:
    """Return the numbers of arrays, and of tuples of arrays, as one vector."""
    return np.concatenate([np.ravel(x) for x in _leaves(moments)])


def unpack(vector: FloatArray, like: Moments) -> Moments:
    """Undo :func:`pack`: a named tuple as `like`, whose arrays are views."""
    arrays, start = [], 0
    for x in _leaves(like):
        arrays.append(vector[start : start + x.size].reshape(x.shape))
        start += x.size
    return _filled(like, iter(arrays))


def _leaves(moments: Iterable[Any]) -> list[FloatArray]:
    return [leaf for x in moments for leaf in (_leaves(x) if isinstance(x, tuple) else (x,))]


def _filled(like: Moments, arrays: Iterator[FloatArray]) -> Moments:
    return type(like)(*(_filled(x, arrays) if isinstance(x, tuple) else next(arrays) for x in like))
