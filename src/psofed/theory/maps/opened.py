"""One iteration with availability, links, fixed delays, groups of attackers, other learners, stepsizes per client.

All moments are kept, given whether a client has downloaded, as in :mod:`psofed.theory.maps.general`. Learning is

    z_k = a_k LMS(v_k) + b_k

(:mod:`psofed.theory.steps.learning`; a = 1 and b = 0 but for leaky LMS), unless client k is away. With B, D, Z and Y of
:mod:`psofed.theory.steps.received`, C_l = E[g z_lᵀ], g' = g + Σ_k ω_k S_k d_k and p, q, κ₀, κ as in
:mod:`psofed.theory.steps.independent_masks`, the exchange is that of the mask laws with b_k/s replaced by ω_k:

- one mask: h = g + Σ_k ω_k d_k, so that E[g hᵀ] = G + Σ_k D_kᵀ, E[h hᵀ] = G + Σ_k (D_k + D_kᵀ) + Σ_kl Z_kl and
  E[h z_lᵀ] = C_l + Σ_k B_kl stand in :mod:`psofed.theory.steps.common_mask`;
- a mask each: A_l = C_l + p Σ_k B_kl, Δ_l = Z_ll, Γ_l = D_l + p Σ_m Z_lm;
- known masks: A_l = C_l + Σ_k S_k B_kl, and T likewise (:class:`psofed.theory.steps.exchange.FixedMasks`).

The downlink adds noise of variance η (``down_variance``) to every value that is downloaded, so to E[v_k v_kᵀ] of those
who have.

**Fixed delays.** An upload that is made in iteration n arrives in n + d. After the download of iteration n, the models
Γ_a = g_{n+a} that the server will have for a = 0, …, d are known already. The state is these d + 1 models and the
clients', and an iteration moves the models on by one place and appends

    g_{n+d+1} = Γ_d + β Σ_k ω_k S_k (u_k − Γ_d),    β = α^d,

while clients download from g_{n+1} = Γ_1. The masks S_k are those of iteration n + 1 in both, and independent of the
state. Since Γ_1 does not depend on them, E[S_k(i)], E[S_l(j)] and M_kl = E[S_k(i) S_l(j)] are all that is needed of any
mask law (:class:`_MaskPairs`):

    E[g' Γ_aᵀ]  = E[Γ_d Γ_aᵀ] + β Σ_k S_k(i) D_ak,    E[g' z_lᵀ] = C_dl + β Σ_k S_k(i) B_kl
    E[g' g'ᵀ]   = E[Γ_d Γ_dᵀ] + β Σ_k (S_k(i) D_dk + S_k(j) D_dkᵀ) + β² Σ_kl M_kl Z_kl
    E[Γ_a v_lᵀ] = (1 − S_l(j)) C_al + S_l(j) E[Γ_a Γ_1ᵀ]
    E[g' v_lᵀ]  = (1 − S_l(j)) C_dl + S_l(j) E[Γ_d Γ_1ᵀ] + β Σ_k ((S_k(i) − M_kl) B_kl + M_kl D_1k)
    E[v_k v_lᵀ] = (1 − S_k(i) − S_l(j) + M_kl) Y_kl + (S_k(i) − M_kl) C_1l + (S_l(j) − M_kl) C_1kᵀ + M_kl E[Γ_1 Γ_1ᵀ].
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.theory.maps.general import Recursion
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.level import Level, Sources
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments
from psofed.theory.steps.common_mask import CommonMask
from psofed.theory.steps.exchange import FixedMasks, MaskMoments
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
    delay_weight : float
        β.
    """

    received: ReceivedLaw
    learning: LearningStep
    down_variance: float = 0.0
    delay_weight: float = 1.0

    @property
    def delay(self) -> int:
        """Number of iterations that every upload takes, d."""
        return self.received.delay

    @cached_property
    def initial(self) -> MomentState:
        """The state when all models are 0: every block is w* w*ᵀ."""
        clients, pairs = super().initial
        models = (self.delay + 1, *clients.cross1.shape)
        return MomentState(
            clients._replace(
                server=np.tile(clients.server, (self.delay + 1, self.delay + 1, 1)),
                cross1=np.broadcast_to(clients.cross1, models),
                cross0=np.broadcast_to(clients.cross0, models),
            ),
            pairs,
        )

    @cached_property
    def initial_first(self) -> FirstMoments:
        """First moments when all models are 0: every one is w*."""
        first = super().initial_first
        return first._replace(server=np.stack([first.server] * (self.delay + 1)))

    def step(
        self, v: MomentState, n: int = 0, sources: Sources | None = None, first: FirstMoments | None = None
    ) -> MomentState:
        """Take the state after the download of iteration n to that of iteration n + 1."""
        sources = Sources() if sources is None else sources
        z = self._learn(v, sources, first)
        means = None if first is None else self._learn_means(first)
        received = self.received.moments(z, means, sources.noise, sources.attack)
        exchange = self.exchanges[n % len(self.exchanges)]
        if self.delay:
            result = self._delayed(_MaskPairs.of(exchange, self.law.rows), z.server, received)
        else:
            result = self._at_once(exchange, z.server[0, 0], received.without_delay())
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
        if self.delay:
            pull = self.delay_weight * (p * sent).sum(axis=0)
            ahead = np.concatenate([means.server[1:], means.server[-1:] + pull])
            return FirstMoments(ahead, (1 - p) * kept + p * ahead[0], kept)
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
        return Level(float(excess.mean()), float(self.entries.trace(v.server[0, 0])))

    def _learn(self, v: MomentState, sources: Sources, first: FirstMoments | None) -> StateMoments:
        """Moments before the upload, given the states kept, taken and perhaps away."""
        if first is not None:  # one mean of the server for each of its models, all clients alike
            first = first._replace(server=first.server[:, None])
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

    def _delayed(self, masks: "_MaskPairs", models: FloatArray, r: ReceivedMoments) -> MomentState:
        flip, flip_pairs, weight = self.entries.flip, self.entries.flip_pairs, self.delay_weight
        row, column, joint = masks
        keep, same = 1 - column, _diagonal(joint)
        pulls = weight * (row * r.toward).sum(axis=1)  # E[(g' − Γ_d) Γ_aᵀ]
        both = (
            models[-1, -1] + pulls[-1] + flip(pulls[-1]) + weight**2 * (joint * r.products).sum(axis=(0, 1))
        )
        ahead = np.empty_like(models)
        ahead[:-1, :-1], ahead[-1, :-1], ahead[-1, -1] = models[1:, 1:], (models[-1] + pulls)[1:], both
        ahead[:-1, -1] = flip(ahead[-1, :-1])
        idle = np.concatenate([r.cross[1:], r.cross[-1:] + weight * (row[:, None] * r.pulled).sum(axis=0)])
        taking = keep * np.concatenate([r.cross[1:], r.cross[-1:]])
        taking += column * np.concatenate([models[1:, 1], models[-1:, 1]])[:, None]
        new = (row[:, None] - joint) * r.pulled + joint * r.toward[1][:, None]
        taking[-1] += weight * new.sum(axis=0)
        own, mixed = _diagonal(r.average), (row - same) * r.cross[1]
        clients = ClientMoments(
            ahead,
            taking,
            idle,
            (keep - row + same) * own + mixed + flip(mixed) + same * models[1, 1],
            own,
        )
        half = (row[:, None] - joint) * r.cross[1]
        pairs = (keep[None, :] - row[:, None] + joint) * r.average + half + flip_pairs(half)
        one = (1 - row)[:, None] * r.average + row[:, None] * r.cross[1]
        return self._state(clients, pairs + joint * models[1, 1], one, r.average)

    def _at_once(self, exchange: object, g: FloatArray, r: ReceivedMoments) -> MomentState:
        if isinstance(exchange, CommonMask):
            result = self._common(exchange, g, r)
        elif isinstance(exchange, IndependentMasks):
            result = self._independent(exchange, g, r)
        elif isinstance(exchange, FixedMasks):
            result = self._fixed(exchange, g, r)
        else:
            raise PsofedError(f"no exchange of {type(exchange).__name__}")
        clients, pairs = result
        server, cross1, cross0 = clients.server[None, None], clients.cross1[None], clients.cross0[None]
        return MomentState(clients._replace(server=server, cross1=cross1, cross0=cross0), pairs)

    def _symmetric(self, v: MomentState) -> MomentState:
        """Make covariances symmetric again."""
        if not self.entries.is_full:
            return v
        server = v.clients.server
        clients, pairs = super()._symmetric(v)
        return MomentState(clients._replace(server=0.5 * (server + self.entries.flip_pairs(server))), pairs)

    def _common(self, exchange: CommonMask, g: FloatArray, r: ReceivedMoments) -> MomentState:
        toward = r.toward.sum(axis=0)
        to_mean = g + self.entries.flip(toward)
        square = to_mean + toward + r.products.sum(axis=(0, 1))
        got = r.cross + r.pulled.sum(axis=0)  # E[h z_lᵀ]
        return self._one_mask(exchange.mask, g, to_mean, square, r.cross, got, r.average)

    def _one_mask(
        self,
        mask: MaskMoments,
        g: FloatArray,
        to_mean: FloatArray,
        square: FloatArray,
        cross: FloatArray,
        got: FloatArray,
        pairs: FloatArray,
    ) -> MomentState:
        """Moments of g and h mixed by one mask, from E[g gᵀ], E[g hᵀ], E[h hᵀ], E[g z_lᵀ], E[h z_lᵀ] and Y."""
        flip, q, only_i, only_j = self.entries.flip, mask.pair, mask.row - mask.pair, mask.column - mask.pair
        neither = 1 - mask.row - only_j
        own, each, turned = _diagonal(pairs), only_i * got, only_j * flip(got)
        clients = ClientMoments(
            neither * g + only_j * to_mean + only_i * flip(to_mean) + q * square,
            neither * cross + only_j * to_mean + only_i * got + q * square,
            (1 - mask.row) * cross + mask.row * got,
            neither * own + each + turned + q * square,
            own,
        )
        both = neither * pairs + each[None, :] + turned[:, None] + q * square
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


class _MaskPairs(NamedTuple):
    """E[S_k(i)] and E[S_k(j)], (K, E) or (1, E), and E[S_k(i) S_l(j)], (K, K, E)."""

    row: FloatArray
    column: FloatArray
    joint: FloatArray

    @classmethod
    def of(cls, exchange: object, clients: int) -> "_MaskPairs":
        """Return the moments of a law's masks."""
        if isinstance(exchange, FixedMasks):
            return cls(exchange.row, exchange.column, exchange.row[:, None] * exchange.column[None, :])
        assert isinstance(exchange, CommonMask | IndependentMasks)
        mask = exchange.mask
        joint = np.tile(mask.pair, (clients, clients, 1))
        if isinstance(exchange, IndependentMasks):
            k = np.arange(clients)
            joint[:] = mask.row * mask.column
            joint[k, k] = mask.pair
        return cls(mask.row[None], mask.column[None], joint)


def _diagonal(pairs: FloatArray) -> FloatArray:
    """Return the blocks of a client with itself, (K, E)."""
    k = np.arange(len(pairs))
    return pairs[k, k]
