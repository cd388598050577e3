"""The steady state with correlated inputs and the pairs of clients eliminated: (6K + 1) D² unknowns instead of 3K²D².

Where the masks need only the average Y_kl of a pair before the upload (one mask for all, or the paper's theory), every
pair obeys, independently of all other pairs,

    Y_kl = Λ_kl (α ∘ Y_kl + F_kl) + Q_kl,

with Λ_kl = (I − μR_k) ⊗ (I − μR_l) the LMS step, α the masks' factor on the average, F_kl what the pair gains from
server and clients, and Q_kl the push of displaced targets. With W_kl = (I − Λ_kl α)⁻¹ Λ_kl, a matrix D² × D² that is
computed once, Y_kl = W_kl (F_kl + α ∘ Q_kl) + Q_kl, and only the sums over pairs act back on server and clients. Over
white inputs :mod:`psofed.theory.maps.reduced` does the same with numbers instead of matrices.

What remains converges slowly where a client's own moments do: close to the stepsize at which it would diverge on its
own, and for clients that learn slowly. Both are seen in the client alone, so that GMRES is given the inverse of that
part of the step (``_Alone``): with Y = L (p_c x₁ + (1 − p_c) x₀) the moment after the LMS step L, x₁ = a ∘ Y + r₁ and
x₀ = b ∘ Y + r₀. It then takes a fifth of the steps, or a fiftieth near the largest stable stepsize.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.theory.maps.general import Recursion
from psofed.theory.maps.krylov import solve_fixed_point
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.layout import Participation
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
    def applies(full: object) -> bool:
        """Whether only averages of pairs are needed, in every iteration alike, and the matrices fit into memory."""
        if type(full) is not Recursion:
            return False
        exchange, clients = full.exchanges[0], full.law.rows
        return (
            full.entries.is_full
            and len(full.exchanges) == 1
            and isinstance(exchange, SeparableMasks)
            and exchange.constants.need_only_the_average
            and clients * (clients - 1) // 2 * full.entries.size**2 <= _MOST_NUMBERS
        )

    def steady_state(self, sources: Sources, tolerance: float | None = None) -> tuple[Level, MomentState]:
        """Find the fixed point: its level and the state."""
        full = self.full
        first = full.steady_first()[0] if sources.direction and full.has_direction else None
        source = self._step(np.zeros(self._length), sources, first)
        x = solve_fixed_point(lambda x: x + self._alone(self._step(x) - x), self._alone(source), tolerance)
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
        sums = full.law.sums(pairs.map(full.law.without_same), self._lms)
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

    def _alone(self, r: FloatArray) -> FloatArray:
        """Undo the part of a step that each client's moments take by themselves; `r` is packed as the unknowns are."""
        v = ClientMoments.unpack(r[: self._split], self.full.law.rows, self.full.entries.size)
        (cross1, cross0), (own1, own0) = (
            self._cross_alone(v.cross1, v.cross0),
            self._own_alone(v.own1, v.own0),
        )
        return pack((v.server, cross1, cross0, own1, own0, r[self._split :]))

    @cached_property
    def _cross_alone(self) -> "_Alone":
        row, column, _ = self._masks.mask
        return _Alone.of(self.full.drawn, self._lms.cross_matrices, (1 - row) * (1 - column), 1 - row)

    @cached_property
    def _own_alone(self) -> "_Alone":
        row, column, pair = self._masks.mask
        return _Alone.of(self.full.drawn, self._lms.own_matrices, 1 - row - column + pair, np.ones_like(row))

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
        # Clients that stand for others make pairs among themselves, too.
        return np.triu_indices(self.full.law.rows, 1 if self.full.law.copies is None else 0)

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


@dataclass(frozen=True, eq=False)
class _Alone:
    """Solves x₁ = a ∘ Y + r₁, x₀ = b ∘ Y + r₀, Y = L (p_c x₁ + (1 − p_c) x₀) for every client.

    Attributes
    ----------
    drawn : Participation
    matrices : array (K, E, E)
        (I − L α)⁻¹ L with α = p_c a + (1 − p_c) b.
    taking, idle : array (E,)
        a and b.
    """

    drawn: Participation
    matrices: FloatArray
    taking: FloatArray
    idle: FloatArray

    @classmethod
    def of(cls, drawn: Participation, steps: FloatArray, taking: FloatArray, idle: FloatArray) -> "_Alone":
        """Invert the steps L, (K, E, E)."""
        system = np.eye(taking.size) - steps * drawn.mix(taking, idle)
        return cls(drawn, np.asarray(np.linalg.solve(system, steps), np.float64), taking, idle)

    def __call__(self, taking: FloatArray, idle: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return x₁ and x₀ for r₁ = `taking` and r₀ = `idle`, (K, E)."""
        moment = (self.matrices @ self.drawn.mix(taking, idle)[:, :, None])[:, :, 0]
        return taking + self.taking * moment, idle + self.idle * moment
