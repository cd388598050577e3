"""One iteration with delays that are 0 or 1 at random, and random masks.

Of the uploads of an iteration some arrive at once (the set 𝓐, m of them), some in the next iteration (𝓑', c' of them),
and some never. How many arrive together, and so their weights λ and β (:mod:`psofed.theory.steps.arrivals`), depends on
c, the number of those made before that are on their way. All moments are therefore kept *given c*. Besides the server's
model g the state has the pull of the uploads on their way,

    J = Σ_{k∈𝓑} S_k (u_k − g),

which is known as soon as g and the masks are. With d_k = u_k − g (:mod:`psofed.theory.steps.received`) and the next
masks S_k, an iteration is

    g' = g + δ,    δ = β J + λ Σ_{k∈𝓐} S_k d_k,    J' = Σ_{k∈𝓑'} S_k (d_k − δ),    v_k' = (1 − S_k) z_k + S_k g'

for those who download (:mod:`psofed.theory.steps.pending`). A target that walks moves g and the clients' errors, but
not J.
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
from psofed.theory.steps.pending import PendingMoments, Pulls

_NOTHING = np.zeros(0)  # where one mask serves all clients


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
        assert isinstance(exchange, CommonMask | IndependentMasks)
        is_common, flip = isinstance(exchange, CommonMask), self.entries.flip
        given = [self._pulls(v, c, sources, first, is_common) for c in range(self.counts.number.size)]
        pulls = Pulls(*map(np.stack, zip(*given, strict=True)))
        pending = PendingMoments(self.counts, self.entries, self.drawn.participants, pulls)
        clients, pairs = _stacked(
            [self._at_once(exchange, server, received) for server, received in pending.arriving()]
        )
        late = pending.common(exchange.mask) if is_common else pending.independent(exchange.mask)
        from_server = np.stack([clients.server[:, 0, 0], late.server], axis=1)
        from_pull = np.stack([flip(late.server), late.square], axis=1)
        clients = clients._replace(
            server=np.stack([from_server, from_pull], axis=1),
            cross1=np.stack([clients.cross1[:, 0], late.taking], axis=1),
            cross0=np.stack([clients.cross0[:, 0], late.idle], axis=1),
            own1=clients.own1 + sources.noise * self._download_noise(n + 1),
        )
        return self._moved(self._symmetric(MomentState(clients, pairs)), sources.drift * self.walk)

    def step_first(self, v: FirstMoments, n: int = 0) -> FirstMoments:
        """Take first moments after the download of iteration n to those of iteration n + 1."""
        given = [self._learn_means(FirstMoments(*(x[c] for x in v))) for c in range(self.counts.number.size)]
        sent, kept = (np.stack(x) for x in zip(*map(self.received.means, given), strict=True))
        server, total = np.stack([x.server for x in given]), sent.sum(axis=1)
        counts, number = self.counts, self.counts.number
        shape = (-1, *(1,) * (total.ndim - 1))

        def mean(x: FloatArray, *powers: int) -> FloatArray:
            return np.asarray(np.tensordot(counts.average(*powers), x, axes=1))

        exchange = self.exchanges[n % len(self.exchanges)]
        p = self.entries.first_mask(self._shared(exchange))
        is_common = isinstance(exchange, CommonMask)
        late, arrived = mean(server[:, 1], 0, 1, 0), mean(sent, 1, 0, 1)
        pull, y0 = arrived.sum(axis=1), mean(server[:, 0], 0, 0, 0) + late
        # A mask for all is 1 wherever it meets itself.
        h = number.reshape(shape) * (mean(total, 0, 0, 0) - late - (1.0 if is_common else p) * pull)
        taken = pull[:, None] if is_common else (p * pull)[:, None] + (1 - p) * arrived
        idle = mean(kept, 0, 0, 0)
        models = np.stack([y0 + p * pull, p * h], axis=1)
        return FirstMoments(models, (1 - p) * idle + p * (y0[:, None] + taken), idle)

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
        self, v: MomentState, c: int, sources: Sources, first: FirstMoments | None, is_common: bool
    ) -> Pulls:
        """Return the moments before the upload, given c."""
        given = _given(v, c)
        means = None if first is None else FirstMoments(*(x[c] for x in first))
        z = self._learn(given, sources, means)
        learned = None if means is None else self._learn_means(means)
        r = self.received.moments(z, learned, sources.noise, sources.attack)
        joined = (_NOTHING, _NOTHING) if is_common else self.received.joined(z, learned)
        return Pulls(z.server, r.toward, r.cross, r.pulled, r.products, r.average, *joined)

    def _symmetric(self, v: MomentState) -> MomentState:
        symmetric = super()._symmetric
        return _stacked([symmetric(_given(v, c)) for c in range(self.counts.number.size)])

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


def _given(v: MomentState, c: int) -> MomentState:
    """Return the moments given c."""
    return MomentState(v.clients.map(lambda x: x[c]), v.pairs.map(lambda x: x[c]))


def _stacked(given: list[MomentState]) -> MomentState:
    """Return the moments for all c, from those given each."""
    clients, pairs = zip(*given, strict=True)
    return MomentState(
        ClientMoments(*map(np.stack, zip(*clients, strict=True))),
        PairMoments(*map(np.stack, zip(*pairs, strict=True))),
    )
