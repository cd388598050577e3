"""Upload and next download: the laws of the masks, and the form that separable ones share.

A mask law takes the moments of server and clients before the upload (z_k, after the LMS step) to those after the
next download (v_k). Upload and download use the same mask S_{k,n+1}, so both are taken in one go and nothing is
averaged in between. b says who uploads: those who downloaded before the LMS step (``uplink = "same"``; the moments
are given participation already), or an independent draw (``"redrawn"``; the moments are mixed first). Who downloads
next, a, is always an independent draw. Derivation: ``docs/exact_theory.md``.

A mask law is *separable* if the moments of the pair (k, l) become

    both_kl = c₁ Y_kl + c₂ (A_k B_kl + A_l B_lkᵀ) + (c₃ Z_kl + c₄ Z_klᵀ) E[A_k A_l] + Σ_j x_kj y_lj,
    one_kl  = c₅ Y_kl + c₆ A_k B_kl + Σ_j x'_kj y'_lj,
    none_kl = Y_kl,

with Y = E[z_k z_lᵀ], B = E[b_k z_k z_lᵀ], Z = E[z_k z_lᵀ | b_k = b_l = 1], the same constants c
(:class:`PairConstants`) for all pairs, A_k the factor of z_k in client k's upload, and products x, y
(:class:`Exchanged`) made of the other moments and of two sums over clients. This is what lets a steady state be found
without storing a pair (:mod:`psofed.theory.maps.reduced`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.layout import Entries, Participation
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments, UploadSums
from psofed.theory.steps.uploads import UploadLaw

Products = list[tuple[FloatArray, FloatArray]]
ONE = np.ones((1, 1))  # a factor that is the same for all clients and entries


class BeforeUpload(NamedTuple):
    """The uploads' law and the moments that it starts from.

    Attributes
    ----------
    law : UploadLaw
    z : ClientMoments
        Server and clients before the upload.
    first : FirstMoments or None
        Likewise their first moments; None drops c.
    attack : float
        Scales the variance that attackers add.
    """

    law: UploadLaw
    z: ClientMoments
    first: FirstMoments | None = None
    attack: float = 1.0


@dataclass(frozen=True, eq=False)
class FixedMasks:
    """Masks that are known, one for each client: round-robin windows, given the clients' offsets.

    Nothing is averaged over masks: g' = g + (1/s) Σ_k b_k S_k d_k and v_k = z_k + a_k S_k (g' − z_k). With A_l =
    E[g' z_lᵀ] and T = E[g' g'ᵀ],

        A_l  = C_l + (1/s) Σ_m S_m(i) E[b_m d_m z_lᵀ]
        T    = G + (1/s) Σ_m (S_m(i) E[b_m d_m gᵀ] + S_m(j) E[b_m g d_mᵀ])
             + (1/s²) Σ_km S_k(i) S_m(j) E[b_k b_m d_k d_mᵀ]
        P¹¹' = (1 − S_k(i)) ((1 − S_l(j)) Y_kl + S_l(j) A_kᵀ) + S_k(i) ((1 − S_l(j)) A_l + S_l(j) T)
        P¹⁰' = (1 − S_k(i)) Y_kl + S_k(i) A_l.

    The constants of a pair depend on both clients' masks, so this law is not separable:
    :mod:`psofed.theory.maps.opened` exchanges it, and :mod:`psofed.theory.maps.windows` compiled, over white inputs.

    Parameters
    ----------
    row, column : array (K, E)
        S_k(i) and S_k(j) on the tracked entries.
    """

    row: FloatArray
    column: FloatArray


class MaskMoments(NamedTuple):
    """Moments of the masks on the tracked entries (i, j), (E,) each: E[S(i)], E[S(j)] and E[S(i) S(j)] of one mask."""

    row: FloatArray
    column: FloatArray
    pair: FloatArray


class PairConstants(NamedTuple):
    """The constants c₁ … c₆ of a separable mask law, each of shape (E,)."""

    average_both: FloatArray
    weighted_both: FloatArray
    both_both: FloatArray
    both_flipped: FloatArray
    average_one: FloatArray
    weighted_one: FloatArray

    @classmethod
    def of_average(cls, both: FloatArray, one: FloatArray) -> "PairConstants":
        """Constants c₁ and c₅; the others are zero."""
        zero = np.zeros_like(both)
        return cls(both, zero, zero, zero, one, zero)

    @property
    def need_only_the_average(self) -> bool:
        """Whether only Y_kl enters, so that one number per pair suffices."""
        return not any(
            map(np.any, (self.weighted_both, self.both_both, self.both_flipped, self.weighted_one))
        )


class Exchanged(NamedTuple):
    """The result of a separable exchange, except for the terms of a pair's own moments.

    Attributes
    ----------
    clients : ClientMoments
        Server and single clients after the next download.
    both, one : list of (left, right)
        Σ_j left_k right_l is what the pair (k, l) gains where both, or only k, participate. Arrays (K, E), or (1, E),
        (K, 1) where they are the same for all clients or entries.
    """

    clients: ClientMoments
    both: Products
    one: Products


@dataclass(frozen=True, eq=False)
class SeparableMasks(ABC):
    """Upload and next download under masks that treat all pairs of clients alike.

    Parameters
    ----------
    drawn : Participation
    entries : Entries
    mask : MaskMoments
    remembered : bool
        True: a client downloads with the mask it has just uploaded with, as the algorithm does (exact). False: with an
        independent one, as the paper's analysis does (𝓠_𝓐 and 𝓠_𝓑 averaged apart).
    """

    drawn: Participation
    entries: Entries
    mask: MaskMoments
    remembered: bool = True

    @property
    @abstractmethod
    def constants(self) -> PairConstants:
        """The constants c₁ … c₆."""

    @abstractmethod
    def clients(self, before: BeforeUpload, sums: UploadSums) -> Exchanged:
        """Exchange server and clients."""

    @abstractmethod
    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""

    def exchange(self, before: BeforeUpload, pairs: PairMoments) -> MomentState:
        """Exchange all moments, pairs by the formula in the module's docstring."""
        law = before.law
        result = self.clients(before, law.sums(pairs))
        drawn, entries, c, own = self.drawn, self.entries, self.constants, law.corruption.own
        average = pairs.average(drawn, entries)
        weighted = own[:, None, None] * (drawn.pair * pairs.both + drawn.only_first * pairs.one)
        both, one = c.average_both * average, c.average_one * average + c.weighted_one * weighted
        if np.any(c.weighted_both) or np.any(c.both_both):
            both += c.weighted_both * (weighted + entries.flip_pairs(weighted))
            factor = law.corruption.own_pair(own[:, None], own[None, :])[:, :, None]
            both += factor * (c.both_both * pairs.both + c.both_flipped * entries.flip(pairs.both))
        for gaining, products in ((both, result.both), (one, result.one)):
            for left, right in products:
                gaining += left[:, None] * right[None, :]
        return MomentState(
            result.clients, PairMoments(law.without_same(both), law.without_same(one), average)
        )


MaskLaw = SeparableMasks | FixedMasks
