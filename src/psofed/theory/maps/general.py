"""One iteration of PSO-Fed on all second moments, and the curves and fixed points that follow from it.

From the download of iteration n to that of iteration n + 1 the moments x go through

    LMS step → (mixing, if the upload set is drawn independently) → relabelling → upload and download → the target's
    walk,

which is x' = F_n x + s_n: linear, and periodic in n where masks are round-robin. The steady state averages over one
period of x = F x + s, ρ(𝓕) is the spectral radius of F (of one iteration: its T-th root for a period T), and the
learning curve iterates from x₀ = w* w*ᵀ in every block. ``lms`` is the LMS step, ``exchanges`` the uploads and
downloads of one period, ``law`` the uploads, ``target`` w*, ``walk`` q.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.periodic import PeriodicRecursion
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.layout import Entries, Participation
from psofed.theory.moments.level import Level, Sources
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments
from psofed.theory.steps.exchange import BeforeUpload, MaskLaw, SeparableMasks
from psofed.theory.steps.lms import CorrelatedLms, WhiteLms
from psofed.theory.steps.uploads import UploadLaw


@dataclass(frozen=True, eq=False)
class Recursion(PeriodicRecursion[MomentState, FirstMoments]):
    """The linear recursion of all second moments, from one download to the next.

    Parameters
    ----------
    lms : WhiteLms or CorrelatedLms
        The clients' LMS step.
    exchanges : tuple of MaskLaw
        Upload and next download of iterations n = 0, 1, …, T − 1, repeated with period T.
    drawn : Participation
    entries : Entries
    redrawn : bool
        Whether the uploading participants are an independent draw.
    law : UploadLaw
        The law of the uploads.
    target : array (D,)
        w*, the error that all models start from.
    walk : float
        q: variance of the step each entry of w* takes per iteration. All errors, the server's included, move by the
        same vector, so every block gains q I; downloads and uploads average errors, so it does not matter on
        which side of them the target moves.
    has_direction : bool
        Whether first moments are needed at all.
    """

    lms: WhiteLms | CorrelatedLms
    exchanges: tuple[MaskLaw, ...]
    drawn: Participation
    entries: Entries
    redrawn: bool
    law: UploadLaw
    target: FloatArray
    walk: float = 0.0
    has_direction: bool = False

    @cached_property
    def initial(self) -> MomentState:
        """The state when all models are 0: every block is w* w*ᵀ."""
        clients = self.law.rows
        if self.entries.is_full:
            block = np.outer(self.target, self.target).ravel()
        else:
            block = np.full(self.entries.size, float(self.target @ self.target) / self.entries.dimension)
        single = np.tile(block, (clients, 1))
        pair = self.law.without_same(np.tile(block, (clients, clients, 1)))
        return MomentState(
            ClientMoments(block, single, single, single, single), PairMoments(pair, pair, pair)
        )

    @cached_property
    def initial_first(self) -> FirstMoments:
        """First moments when all models are 0: every one is w*."""
        target = np.array(self.entries.vector(self.target))
        everyone = np.broadcast_to(target, (self.law.rows, *target.shape))
        return FirstMoments(target, everyone, everyone)

    @property
    def period(self) -> int:
        """T."""
        return len(self.exchanges)

    def step(
        self, v: MomentState, n: int = 0, sources: Sources | None = None, first: FirstMoments | None = None
    ) -> MomentState:
        """Take the state after the download of iteration n to that of iteration n + 1.

        `first` are the first moments after the download of iteration n, None to leave out what has a direction.
        """
        sources = Sources() if sources is None else sources
        z = self.lms.clients(v.clients, sources.noise, sources.attack, first)
        before = None if first is None else self.first_before_upload(first)
        exchange = self._exchange(n)
        uploading = BeforeUpload(self.law, self.before_upload(z), before, sources.attack)
        result = exchange.exchange(uploading, self.pairs_before_upload(v.pairs, first))
        return self._moved(self._symmetric(result), sources.drift * self.walk)

    def pairs_before_upload(self, pairs: PairMoments, first: FirstMoments | None) -> PairMoments:
        """Take pairs after a download to those before the next upload."""
        pairs = self.lms.pairs(pairs, first)
        if first is not None:
            # Displacements push a client's pair with itself too, which is not one of these moments.
            pairs = pairs.map(self.law.without_same)
        if self.redrawn:
            pairs = pairs.mixed(self.drawn, self.entries)
        return pairs.map(self.entries.roll)

    def before_upload(self, z: ClientMoments) -> ClientMoments:
        """Mix and relabel the moments of server and clients between LMS step and upload."""
        return (z.mixed(self.drawn) if self.redrawn else z).map(self.entries.roll)

    def first_before_upload(self, v: FirstMoments) -> FirstMoments:
        """Take first moments after a download to those before the next upload."""
        z, roll = self.lms.first(v), self.entries.roll_first
        z = z.mixed(self.drawn) if self.redrawn else z
        return FirstMoments(*map(roll, z))

    def step_first(self, v: FirstMoments, n: int = 0) -> FirstMoments:
        """Take first moments after the download of iteration n to those of iteration n + 1."""
        return self._exchange(n).first(self.law, self.first_before_upload(v))

    def level(self, v: ClientMoments, first: FirstMoments | None = None) -> Level:
        """Excess network MSE and server MSD of server and clients."""
        mean = None if first is None else first.average(self.drawn)
        excess = self.law.total(self.lms.excess(self.drawn.mix(v.own1, v.own0), mean)) / self.drawn.clients
        return Level(float(excess), float(self.entries.trace(v.server)))

    def level_of(self, v: MomentState, first: FirstMoments | None = None) -> Level:
        """Excess network MSE and server MSD of a state."""
        return self.level(v.clients, first)

    def _exchange(self, n: int) -> SeparableMasks:
        exchange = self.exchanges[n % len(self.exchanges)]
        assert isinstance(exchange, SeparableMasks)
        return exchange

    def _moved(self, v: MomentState, walk: float) -> MomentState:
        if walk == 0.0:
            return v
        moved = walk * self.entries.diagonal
        return MomentState(
            v.clients.map(lambda x: x + moved), v.pairs.map(lambda x: self.law.without_same(x + moved))
        )

    def _symmetric(self, v: MomentState) -> MomentState:
        """Make covariances symmetric again: rounding is not, and formulas that rely on symmetry may amplify it."""
        if not self.entries.is_full:
            return v
        pairs, flip_pairs = v.pairs, self.entries.flip_pairs
        both, none = (0.5 * (x + flip_pairs(x)) for x in (pairs.both, pairs.none))
        return MomentState(self.symmetric_clients(v.clients), PairMoments(both, pairs.one, none))

    def symmetric_clients(self, v: ClientMoments) -> ClientMoments:
        """Make covariances of server and single clients symmetric again."""
        flip = self.entries.flip
        server, own1, own0 = (0.5 * (x + flip(x)) for x in (v.server, v.own1, v.own0))
        return ClientMoments(server, v.cross1, v.cross0, own1, own0)
