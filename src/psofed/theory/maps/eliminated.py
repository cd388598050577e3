"""The steady state with correlated inputs and the pairs of clients eliminated: (6K + 1) D² unknowns instead of 3K²D².

Where the masks need only the average Y_kl of a pair before the upload (one mask for all, or the paper's theory), every
pair obeys, independently of all other pairs,

    Y_kl = Λ_kl (α ∘ Y_kl + F_kl) + Q_kl,

with Λ_kl = (I − μR_k) ⊗ (I − μR_l) the LMS step, α the masks' factor on the average, F_kl what the pair gains from
server and clients, and Q_kl the push of displaced targets. With W_kl = (I − Λ_kl α)⁻¹ Λ_kl, a matrix D² × D² that is
computed once, Y_kl = W_kl (F_kl + α ∘ Q_kl) + Q_kl, and only the sums over pairs act back on server and clients. Over
white inputs :mod:`psofed.theory.maps.reduced` does the same with numbers instead of matrices.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.theory.maps.general import Recursion
from psofed.theory.maps.krylov import solve_fixed_point
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.level import NO_SOURCES, Level, Sources
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments, UploadSums, pack
from psofed.theory.steps.exchange import BeforeUpload, Exchanged, SeparableMasks
from psofed.theory.steps.lms import CorrelatedLms

_MOST_NUMBERS = 2**24  # in the matrices of all pairs, an eighth of a gigabyte


@dataclass(frozen=True, eq=False)
class EliminatedRecursion:
    """A recursion on server, clients and two sums over pairs; for steady states only.

    Parameters
    ----------
    full : Recursion
        The recursion whose pairs to eliminate; :meth:`applies` must hold.
    """

    full: Recursion

    @staticmethod
    def applies(full: Recursion) -> bool:
        """Whether only averages of pairs are needed, in every iteration alike, and the matrices fit into memory."""
        exchange, clients = full.exchanges[0], full.drawn.clients
        return (
            type(full) is Recursion
            and full.entries.is_full
            and len(full.exchanges) == 1
            and isinstance(exchange, SeparableMasks)
            and exchange.constants.need_only_the_average
            and clients * (clients - 1) // 2 * full.entries.size**2 <= _MOST_NUMBERS
        )

    def steady_state(self, sources: Sources) -> tuple[Level, MomentState]:
        """Find the fixed point: its level and the state."""
        full = self.full
        first = full.steady_first()[0] if sources.direction and full.has_direction else None
        source = self._step(np.zeros(self._length), sources, first)
        x = solve_fixed_point(self._step, source)
        clients = ClientMoments.unpack(x[: self._split], full.law.rows, full.entries.size)
        pairs = self._pairs(self._exchange(x, sources, first), sources, first)
        return full.level(clients, first), MomentState(clients, pairs.map(full.law.without_same))

    def _step(
        self, x: FloatArray, sources: Sources = NO_SOURCES, first: FirstMoments | None = None
    ) -> FloatArray:
        """One iteration on the packed unknowns: server and clients, then the sums over pairs before the upload."""
        full = self.full
        result = self._exchange(x, sources, first)
        moved = result.clients.map(lambda v: v + self._walk(sources))
        pairs = self._pairs(result, sources, first)
        if full.redrawn:
            pairs = pairs.mixed(full.drawn, full.entries)
        sums = full.law.sums(pairs.map(full.law.without_same), self._lms.sum_decayed)
        pushed = self._lms.pushed_pairs(first)
        if pushed is not None:
            pushed = pushed.mixed(full.drawn, full.entries) if full.redrawn else pushed
            sums = UploadSums(*map(np.add, sums, full.law.sums(pushed.map(full.law.without_same))))
        return pack((*full.symmetric_clients(moved), *sums))

    def _exchange(self, x: FloatArray, sources: Sources, first: FirstMoments | None) -> Exchanged:
        full, size, rows = self.full, self.full.entries.size, self.full.law.rows
        v = ClientMoments.unpack(x[: self._split], rows, size)
        z = full.lms.clients(v, sources.noise, sources.attack, first)
        before = None if first is None else full.first_before_upload(first)
        uploading = BeforeUpload(full.law, full.before_upload(z), before, sources.attack)
        return self._masks.clients(uploading, UploadSums(*x[self._split :].reshape(2, rows, size)))

    def _pairs(self, result: Exchanged, sources: Sources, first: FirstMoments | None) -> PairMoments:
        """Pairs after the download, from what they gain; those of a client with itself mean nothing."""
        drawn, entries, c, walk = (
            self.full.drawn,
            self.full.entries,
            self._masks.constants,
            self._walk(sources),
        )
        both, one = (
            sum((left[:, None] * right[None, :] for left, right in products), walk)
            for products in (result.both, result.one)
        )
        gained = PairMoments(both, one, walk).average(drawn, entries)
        k, m = self._upper
        upper = gained[k, m]
        pushed = self._lms.pushed_pairs(first)
        if pushed is None:
            upper = self._apply(upper)
        else:
            push = pushed.average(drawn, entries)[k, m]
            upper = self._apply(upper + self._kept * push) + push
        average = np.zeros_like(gained)
        average[k, m], average[m, k] = upper, entries.flip(upper)
        return PairMoments(c.average_both * average + both, c.average_one * average + one, average + walk)

    def _apply(self, upper: FloatArray) -> FloatArray:
        """Apply W_kl to blocks of the pairs k < l, (N, D²)."""
        return np.asarray((self._matrices @ upper[:, :, None])[:, :, 0])

    def _walk(self, sources: Sources) -> FloatArray:
        """Return what every block gains from the target's walk."""
        return sources.drift * self.full.walk * self.full.entries.diagonal

    @cached_property
    def _kept(self) -> FloatArray:
        """α: factor of a pair's average through upload and download."""
        drawn, c = self.full.drawn, self._masks.constants
        one = c.average_one + self.full.entries.flip(c.average_one)
        return np.asarray(drawn.pair * c.average_both + drawn.only_first * one + drawn.neither)

    @cached_property
    def _matrices(self) -> FloatArray:
        """W_kl of the pairs k < l, (K (K − 1)/2, D², D²)."""
        steps = self._lms.pair_matrices(*self._upper)
        return np.asarray(np.linalg.solve(np.eye(self.full.entries.size) - steps * self._kept, steps))

    @cached_property
    def _upper(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.triu_indices(self.full.law.rows, 1)

    @cached_property
    def _masks(self) -> SeparableMasks:
        (exchange,) = self.full.exchanges
        assert isinstance(exchange, SeparableMasks)
        return exchange

    @cached_property
    def _lms(self) -> CorrelatedLms:
        assert isinstance(self.full.lms, CorrelatedLms)
        return self.full.lms

    @property
    def _split(self) -> int:
        return ClientMoments.length(self.full.law.rows, self.full.entries.size)

    @property
    def _length(self) -> int:
        return self._split + 2 * self.full.law.rows * self.full.entries.size
