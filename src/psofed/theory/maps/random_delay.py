"""One iteration with delays that are 0 or 1 at random, and one mask for all clients.

Of the uploads of an iteration some arrive at once (the set 𝓐, m of them), some in the next iteration (𝓑', c' of them),
and some never. How many arrive together, and so their weights λ and β (:mod:`psofed.theory.steps.arrivals`), depends on
c, the number of those made before that are on their way. All moments are therefore kept *given c*. Besides the server's
model g the state has the pull of the uploads on their way,

    J = S Σ_{k∈𝓑} (u_k − g),

which is known as soon as g and the masks are. With d_k = u_k − g (:mod:`psofed.theory.steps.received`), the next mask
S and

    y₀ = g + β J,    y₁ = y₀ + λ Σ_{k∈𝓐} d_k,    h = Σ_{k∈𝓑'} d_k + c' (g − y₁)

an iteration is

    g' = (1 − S) y₀ + S y₁,    J' = S h,    v_k' = (1 − S) z_k + S y₁ of those who download.

Given m and c', each uploader is as likely as any other to be in 𝓐 or 𝓑', so that with the averages over uploaders
d̄ = E[d_k ·], s = E[d_k d_kᵀ] and t = E[d_k d_lᵀ], k ≠ l,

    E[Σ_𝓐 d ·] = m d̄,    E[Σ_𝓐 d Σ_𝓐 dᵀ] = m s + m (m − 1) t,    E[Σ_𝓑' d Σ_𝓐 dᵀ] = m c' t.

A target that walks moves g and the clients' errors, but not J.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.opened import OpenedRecursion
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.level import Level, Sources
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments
from psofed.theory.steps.arrivals import ArrivalCounts
from psofed.theory.steps.common_mask import CommonMask
from psofed.theory.steps.independent_masks import IndependentMasks


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomDelayRecursion(OpenedRecursion):
    """The recursion of all second moments given c, a first axis (C,) of every array; the server's models are g and J.

    Parameters
    ----------
    counts : ArrivalCounts
        The law of m, c and c'.
    """

    counts: ArrivalCounts

    @cached_property
    def initial(self) -> MomentState:
        """The state when all models are 0 and nothing is on its way."""
        clients, pairs = super().initial
        nothing = np.zeros_like(clients.cross1[0])
        server = np.zeros((2, 2, self.entries.size))
        server[0, 0] = clients.server[0, 0]
        clients = clients._replace(
            server=server,
            cross1=np.stack([clients.cross1[0], nothing]),
            cross0=np.stack([clients.cross0[0], nothing]),
        )
        return MomentState(clients.map(self._repeated), pairs.map(self._repeated))

    @cached_property
    def initial_first(self) -> FirstMoments:
        """First moments when all models are 0 and nothing is on its way."""
        first = super().initial_first
        server = np.concatenate([first.server, np.zeros_like(first.server)])
        return FirstMoments(*map(self._repeated, (server, first.taking, first.idle)))

    @property
    def beginning(self) -> "RandomDelayRecursion":
        """The recursion of the first iteration, in which only new uploads arrive."""
        return replace(self, counts=self.counts.at_start)

    def step(
        self, v: MomentState, n: int = 0, sources: Sources | None = None, first: FirstMoments | None = None
    ) -> MomentState:
        """Take the state after the download of iteration n to that of iteration n + 1."""
        sources = Sources() if sources is None else sources
        exchange = self.exchanges[n % len(self.exchanges)]
        assert isinstance(exchange, CommonMask | IndependentMasks)  # the latter where all entries are shared
        given = [self._pulls(v, c, sources, first) for c in range(self.counts.number.size)]
        models, to_server, cross, pulled, single, pair, pairs = map(np.stack, zip(*given, strict=True))
        number, flip = self.counts.number, self.entries.flip
        g, j = models[:, 0], models[:, 1]  # E[g ·] and E[J ·] of g and J

        def mean(x: FloatArray, pull: int = 0, late: int = 0, m: int = 0) -> FloatArray:
            """Σ_c π_c E[λ^pull β^late · | c'] x_c, (C, …), with 1, m or m (m − 1) in the place of the dot."""
            return np.asarray(np.tensordot(self.counts.average(pull, late, m), x, axes=1))

        def times(power: FloatArray, x: FloatArray) -> FloatArray:
            return power.reshape(-1, *(1,) * (x.ndim - 1)) * x

        def both_ways(x: FloatArray) -> FloatArray:
            return np.asarray(x + flip(x))

        d_g, d_j = to_server[:, 0], to_server[:, 1]
        y0_y0 = mean(g[:, 0]) + mean(both_ways(g[:, 1]), late=1) + mean(j[:, 1], late=2)
        a_y0 = mean(d_g, 1, 0, 1) + mean(d_j, 1, 1, 1)  # of λ Σ_𝓐 d
        a_a = mean(single, 2, 0, 1) + mean(pair, 2, 0, 2)
        y0_y1 = y0_y0 + flip(a_y0)
        y1_y1 = y0_y0 + both_ways(a_y0) + a_a
        h_y0 = mean(d_g) + mean(d_j, late=1) - mean(j[:, 0], late=1) - mean(j[:, 1], late=2) - a_y0
        h_a = mean(pair, 1, 0, 1) - mean(flip(d_j), 1, 1, 1) - a_a
        h_y0, h_y1 = times(number, h_y0), times(number, h_y0 + h_a)
        h_h = mean(j[:, 1], late=2) + a_a - mean(both_ways(d_j), late=1)
        h_h = h_h - 2.0 * mean(pair, 1, 0, 1) + mean(both_ways(d_j), 1, 1, 1)
        h_h = times(number, mean(single)) + times(number * (number - 1), mean(pair)) + times(number**2, h_h)
        y0_z = mean(cross[:, 0]) + mean(cross[:, 1], late=1)
        a_z = mean(pulled, 1, 0, 1)
        h_z = times(number, mean(pulled) - mean(cross[:, 1], late=1) - a_z)
        y1_z, average = y0_z + a_z, mean(pairs)
        mask = exchange.mask
        only_i, only_j = mask.row - mask.pair, mask.column - mask.pair
        states = [
            self._one_mask(mask, *x) for x in zip(y0_y0, y0_y1, y1_y1, y0_z, y1_z, average, strict=True)
        ]
        clients = ClientMoments(*map(np.stack, zip(*(state.clients for state in states), strict=True)))
        g_j = only_j * flip(h_y0) + mask.pair * flip(h_y1)
        server = np.stack(
            [np.stack([clients.server, g_j], axis=1), np.stack([flip(g_j), mask.pair * h_h], axis=1)], axis=1
        )
        late1 = only_i * h_z + (mask.pair * h_y1)[:, None]
        clients = clients._replace(
            server=server,
            cross1=np.stack([clients.cross1, late1], axis=1),
            cross0=np.stack([clients.cross0, mask.row * h_z], axis=1),
            own1=clients.own1 + sources.noise * self._download_noise(n + 1),
        )
        result = MomentState(
            clients, PairMoments(*map(np.stack, zip(*(state.pairs for state in states), strict=True)))
        )
        return self._moved(result, sources.drift * self.walk)

    def step_first(self, v: FirstMoments, n: int = 0) -> FirstMoments:
        """Take first moments after the download of iteration n to those of iteration n + 1."""
        given = [self._learn_means(FirstMoments(*(x[c] for x in v))) for c in range(self.counts.number.size)]
        sent, kept = (np.stack(x) for x in zip(*map(self.received.means, given), strict=True))
        server, total = np.stack([x.server for x in given]), sent.sum(axis=1)
        counts, number = self.counts, self.counts.number
        shape = (-1, *(1,) * (total.ndim - 1))

        def mean(x: FloatArray, *powers: int) -> FloatArray:
            return np.asarray(np.tensordot(counts.average(*powers), x, axes=1))

        late, pull = mean(server[:, 1], 0, 1, 0), mean(total, 1, 0, 1)
        y0 = mean(server[:, 0], 0, 0, 0) + late
        h = number.reshape(shape) * (mean(total, 0, 0, 0) - late - pull)
        p = self.entries.first_mask(self._shared(self.exchanges[n % len(self.exchanges)]))
        idle = mean(kept, 0, 0, 0)
        models = np.stack([y0 + p * pull, p * h], axis=1)
        return FirstMoments(models, (1 - p) * idle + p * (y0 + pull)[:, None], idle)

    def level(self, v: ClientMoments, first: FirstMoments | None = None) -> Level:
        """Excess network MSE and server MSD of a state, averaged over c."""
        if first is not None:
            first = FirstMoments(*map(self._average, first))
        return super().level(self.averaged(v), first)

    def averaged(self, v: ClientMoments) -> ClientMoments:
        """Return the moments averaged over c."""
        return v.map(self._average)

    def _average(self, x: FloatArray) -> FloatArray:
        return np.asarray(np.tensordot(self.counts.pending, x, axes=1))

    def _pulls(
        self, v: MomentState, c: int, sources: Sources, first: FirstMoments | None
    ) -> tuple[FloatArray, ...]:
        """E[Γ_a Γ_bᵀ], E[d Γ_aᵀ], E[Γ_a z_lᵀ], E[d z_lᵀ], s, t and Y given c, d being averaged over uploaders."""
        given = MomentState(v.clients.map(lambda x: x[c]), v.pairs.map(lambda x: x[c]))
        means = None if first is None else FirstMoments(*(x[c] for x in first))
        z = self._learn(given, sources, means)
        learned = None if means is None else self._learn_means(means)
        r = self.received.moments(z, learned, sources.noise, sources.attack)
        uploads, k = self.drawn.participants, np.arange(self.law.rows)
        single = r.products[k, k].sum(axis=0)
        pair = (r.products.sum(axis=(0, 1)) - single) * (uploads / max(uploads - 1, 1))
        toward, pulled = r.toward.sum(axis=1), r.pulled.sum(axis=0)
        return z.server, toward, r.cross, pulled, uploads * single, pair, r.average

    def _moved(self, v: MomentState, walk: float) -> MomentState:
        if walk == 0.0:
            return v
        moved, clients = walk * self.entries.diagonal, v.clients
        server, cross1, cross0 = (x.copy() for x in (clients.server, clients.cross1, clients.cross0))
        server[:, 0, 0] += moved
        cross1[:, 0] += moved
        cross0[:, 0] += moved
        return MomentState(
            ClientMoments(server, cross1, cross0, clients.own1 + moved, clients.own0 + moved),
            v.pairs.map(lambda x: x + moved * (1.0 - np.eye(self.law.rows))[:, :, None]),
        )

    def _repeated(self, x: FloatArray) -> FloatArray:
        return np.stack([x] * self.counts.number.size)
