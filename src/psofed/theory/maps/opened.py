"""One iteration with availability, noisy and lossy links, groups of attackers, other learners, stepsizes per client.

All moments are kept, given whether a client has downloaded, as in :mod:`psofed.theory.maps.general`. Learning is

    z_k = a_k LMS(v_k) + b_k

(:mod:`psofed.theory.steps.learning`; a = 1 and b = 0 but for leaky LMS), unless client k is away. With B, D, Z and Y of
:mod:`psofed.theory.steps.received`, C_l = E[g z_lᵀ], g' = g + Σ_k ω_k S_k d_k and p, q, κ₀, κ as in
:mod:`psofed.theory.steps.independent_masks`, the exchange is that of the mask laws with b_k/s replaced by ω_k:

- one mask: h = g + Σ_k ω_k d_k, so that E[g hᵀ] = G + Σ_k D_kᵀ, E[h hᵀ] = G + Σ_k (D_k + D_kᵀ) + Σ_kl Z_kl and
  E[h z_lᵀ] = C_l + Σ_k B_kl stand in :mod:`psofed.theory.steps.common_mask`;
- a mask each: A_l = C_l + p Σ_k B_kl, Δ_l = Z_ll, Γ_l = D_l + p Σ_m Z_lm;
- known masks: A_l = C_l + Σ_k S_k B_kl, and T likewise (:mod:`psofed.theory.steps.fixed_masks`).

The downlink adds noise of variance η (``down_variance``) to every value that is downloaded, so to E[v_k v_kᵀ] of those
who have.
"""

from dataclasses import dataclass

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.theory.maps.general import Recursion
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.level import Level, Sources
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments
from psofed.theory.steps.common_mask import CommonMask
from psofed.theory.steps.fixed_masks import FixedMasks
from psofed.theory.steps.independent_masks import IndependentMasks
from psofed.theory.steps.learning import LearningStep
from psofed.theory.steps.received import ReceivedLaw, ReceivedMoments, StateMeans, StateMoments


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenedRecursion(Recursion):
    """The recursion of all second moments, from one download to the next, with every part of the iteration open.

    Parameters
    ----------
    received : ReceivedLaw
        The law of the uploads, in place of `law`, which only knows the number of clients here.
    learning : LearningStep
        The learner's step, in place of `lms`, which only measures errors here.
    down_variance : float
        η.
    """

    received: ReceivedLaw
    learning: LearningStep
    down_variance: float = 0.0

    def step(
        self, v: MomentState, n: int = 0, sources: Sources | None = None, first: FirstMoments | None = None
    ) -> MomentState:
        """Take the state after the download of iteration n to that of iteration n + 1."""
        sources = Sources() if sources is None else sources
        z = self._learn(v, sources, first)
        means = None if first is None else self._learn_means(first)
        received = self.received.moments(z, means, sources.noise, sources.attack)
        exchange = self.exchanges[n % len(self.exchanges)]
        if isinstance(exchange, CommonMask):
            result = self._common(exchange, z.server, received)
        elif isinstance(exchange, IndependentMasks):
            result = self._independent(exchange, z.server, received)
        elif isinstance(exchange, FixedMasks):
            result = self._fixed(exchange, z.server, received)
        else:
            raise PsofedError(f"no exchange of {type(exchange).__name__}")
        noise = sources.noise * self._download_noise(n + 1)
        result = MomentState(result.clients._replace(own1=result.clients.own1 + noise), result.pairs)
        return self._moved(self._symmetric(result), sources.drift * self.walk)

    def start(self, n: int) -> MomentState:
        """Return the state after the download of iteration n, if all models are 0 before it."""
        clients, pairs = self.initial
        return MomentState(clients._replace(own1=clients.own1 + self._download_noise(n)), pairs)

    def _download_noise(self, n: int) -> FloatArray:
        """Covariance of the downlink's noise in iteration n, on the tracked entries."""
        exchange = self.exchanges[(n - 1) % len(self.exchanges)]  # with whose masks iteration n downloads
        return np.asarray(self.down_variance * self._shared(exchange) * self.entries.diagonal)

    def step_first(self, v: FirstMoments, n: int = 0) -> FirstMoments:
        """Take first moments after the download of iteration n to those of iteration n + 1."""
        means = self._learn_means(v)
        sent, kept = self.received.means(means)
        exchange = self.exchanges[n % len(self.exchanges)]
        p = self.entries.first_mask(self._shared(exchange))
        if isinstance(exchange, FixedMasks):
            server = means.server + (p * sent).sum(axis=0)
            taken = server
        else:
            total = sent.sum(axis=0)
            server = means.server + p * total
            each = (1 - p) * (total if isinstance(exchange, CommonMask) else sent)
            taken = server + each
        return FirstMoments(server, (1 - p) * kept + p * taken, kept)

    def level(self, v: ClientMoments, first: FirstMoments | None = None) -> Level:
        """Excess network MSE and server MSD of a state."""
        p = self.received.presence.download
        mean = None
        if first is not None:
            chance = self.entries.per_client(p)
            mean = chance * first.taking + (1 - chance) * first.idle
        excess = self.lms.excess(p[:, None] * v.own1 + (1 - p)[:, None] * v.own0, mean)
        return Level(float(excess.mean()), float(self.entries.trace(v.server)))

    def _learn(self, v: MomentState, sources: Sources, first: FirstMoments | None) -> StateMoments:
        """Moments before the upload, given the states kept, taken and perhaps away."""
        clients, pairs = self.learning.moments(v, sources, first)
        roll, flip_pairs = self.entries.roll, self.entries.flip_pairs
        cross, own = [clients.cross0, clients.cross1], [clients.own0, clients.own1]
        blocks = [[pairs.none, flip_pairs(pairs.one)], [pairs.one, pairs.both]]
        if len(self.received.presence.single) > 2:
            cross, own = [*cross, v.clients.cross0], [*own, v.clients.own0]
            idle = None if first is None else first.idle
            kept, taken = (
                self.learning.half(block, mean, idle)
                for block, mean in (
                    (v.pairs.none, None if first is None else first.idle),
                    (v.pairs.one, None if first is None else first.taking),
                )
            )
            blocks[0].append(kept)
            blocks[1].append(taken)
            blocks.append([flip_pairs(kept), flip_pairs(taken), v.pairs.none])
        return StateMoments(
            roll(v.clients.server),
            [roll(x) for x in cross],
            [roll(x) for x in own],
            [[roll(x) for x in row] for row in blocks],
        )

    def _learn_means(self, v: FirstMoments) -> StateMeans:
        roll, z = self.entries.roll_first, self.learning.first(v)
        away = [v.idle] if len(self.received.presence.single) > 2 else []
        return StateMeans(roll(v.server), [roll(x) for x in (z.idle, z.taking, *away)])

    def _shared(self, exchange: object) -> FloatArray:
        """E[S(i)] on the tracked entries, (E,) or (K, E)."""
        assert isinstance(exchange, CommonMask | IndependentMasks | FixedMasks)
        return exchange.row if isinstance(exchange, FixedMasks) else exchange.mask.row

    def _common(self, exchange: CommonMask, g: FloatArray, r: ReceivedMoments) -> MomentState:
        flip, mask = self.entries.flip, exchange.mask
        q, only_i, only_j = mask.pair, mask.row - mask.pair, mask.column - mask.pair
        neither = 1 - mask.row - only_j
        toward = r.toward.sum(axis=0)
        to_mean, square = g + flip(toward), g + toward + flip(toward) + r.products.sum(axis=(0, 1))
        got = r.cross + r.pulled.sum(axis=0)  # E[h z_lᵀ]
        own, pairs = _diagonal(r.average), r.average
        server = neither * g + only_j * to_mean + only_i * flip(to_mean) + q * square
        each, turned = only_i * got, only_j * flip(got)
        both = neither * pairs + each[None, :] + turned[:, None] + q * square
        clients = ClientMoments(
            server,
            neither * r.cross + only_j * to_mean + only_i * got + q * square,
            (1 - mask.row) * r.cross + mask.row * got,
            neither * own + each + turned + q * square,
            own,
        )
        return self._state(clients, both, (1 - mask.row) * pairs + mask.row * got[None, :], pairs)

    def _independent(self, exchange: IndependentMasks, g: FloatArray, r: ReceivedMoments) -> MomentState:
        flip, flip_pairs = self.entries.flip, self.entries.flip_pairs
        p, q = exchange.mask.row, exchange.mask.pair
        variance, covariance = p - p**2, q - p**2
        Delta, B, own = _diagonal(r.products), _diagonal(r.pulled), _diagonal(r.average)
        toward, pulls = r.toward.sum(axis=0), Delta.sum(axis=0)
        ee = g + p * (toward + flip(toward)) + p**2 * r.products.sum(axis=(0, 1))
        T = ee + covariance * pulls
        A = r.cross + p * r.pulled.sum(axis=0)
        Gamma = r.toward + p * r.products.sum(axis=1)
        Xi = covariance * Gamma + variance * flip(Gamma) + (1 - 2 * p) * covariance * Delta
        N = (p - q) * A + (variance - q * (1 - p)) * B
        own_server = (
            ee + (1 - p) * (Gamma + flip(Gamma)) + (1 - p) ** 2 * Delta + covariance * (pulls - Delta)
        )
        clients = ClientMoments(
            T,
            (1 - p) * A - covariance * B + p * T + Xi,
            A,
            (1 - 2 * p + q) * own + N + flip(N) + q * own_server,
            own,
        )
        X = (1 - p) * (p * A[None, :] + variance * r.pulled) - p * covariance * B[None, :] + p * Xi[None, :]
        both = (1 - p) ** 2 * r.average + X + flip_pairs(X) + p**2 * T
        both = both + variance**2 * r.products + covariance**2 * r.products.swapaxes(0, 1)
        one = (1 - p) * r.average + p * A[None, :] + variance * r.pulled
        return self._state(clients, both, one, r.average)

    def _fixed(self, exchange: FixedMasks, g: FloatArray, r: ReceivedMoments) -> MomentState:
        flip, row, column = self.entries.flip, exchange.row, exchange.column
        A = r.cross + np.einsum("ke,kle->le", row, r.pulled)
        toward = (row * r.toward).sum(axis=0)
        T = g + toward + flip(toward) + np.einsum("ke,kle,le->e", row, r.products, column)
        own, mixed = _diagonal(r.average), row * (1 - column) * A
        clients = ClientMoments(
            T,
            (1 - column) * A + column * T,
            A,
            (1 - row) * (1 - column) * own + mixed + flip(mixed) + row * column * T,
            own,
        )
        rows, columns = row[:, None], column[None, :]
        one = (1 - rows) * r.average + rows * A[None, :]
        both = (1 - columns) * one + columns * ((1 - rows) * flip(A)[:, None] + rows * T)
        return self._state(clients, both, one, r.average)

    def _state(
        self, clients: ClientMoments, both: FloatArray, one: FloatArray, average: FloatArray
    ) -> MomentState:
        pairs = PairMoments(*(self.law.without_same(x.copy()) for x in (both, one, average)))
        return MomentState(clients, pairs)


def _diagonal(pairs: FloatArray) -> FloatArray:
    """Return the blocks of a client with itself, (K, E)."""
    k = np.arange(len(pairs))
    return pairs[k, k]
