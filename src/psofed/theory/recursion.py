"""One iteration of PSO-Fed on second moments, and the curves and fixed points that follow from iterating it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.exchange import SeparableExchange, exchange_pairs
from psofed.theory.first import FirstMoments
from psofed.theory.fixed_masks import FixedMasks
from psofed.theory.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.lms import CorrelatedLms, WhiteLms
from psofed.theory.moments import ClientMoments, Entries, PairMoments, Participation
from psofed.theory.uploads import UploadLaw

Exchange = SeparableExchange | FixedMasks


@dataclass(frozen=True, eq=False)
class State:
    """All second moments after the download of one iteration."""

    clients: ClientMoments
    pairs: PairMoments

    def pack(self) -> FloatArray:
        """Return all numbers as one vector."""
        return np.concatenate([self.clients.pack(), self.pairs.pack()])

    @staticmethod
    def length(clients: int, entries: int) -> int:
        """Length of the packed vector."""
        return ClientMoments.length(clients, entries) + PairMoments.length(clients, entries)

    @classmethod
    def unpack(cls, vector: FloatArray, clients: int, entries: int) -> "State":
        """Undo :meth:`pack`; the fields are views."""
        split = ClientMoments.length(clients, entries)
        return cls(
            ClientMoments.unpack(vector[:split], clients, entries),
            PairMoments.unpack(vector[split:], clients, entries),
        )


@dataclass(frozen=True)
class Sources:
    """How much of each source drives the moments: all for the truth, one alone for its term, none for 𝓕.

    Attributes
    ----------
    noise : float
        Observation noise.
    attack : float
        The variance that attackers add, to uploads or through poisoned samples.
    drift : float
        The target's walk.
    direction : bool
        What has a direction, and needs first moments: offsets of attacks, displaced targets.
    """

    noise: float = 1.0
    attack: float = 1.0
    drift: float = 1.0
    direction: bool = True


NO_SOURCES = Sources(0.0, 0.0, 0.0, direction=False)


@dataclass(frozen=True, eq=False)
class Level:
    """Excess network MSE (without the clients' own noise) and server MSD."""

    excess: float
    server: float

    def __post_init__(self) -> None:
        # Plain floats, so that what is printed or written as JSON does not show where it came from
        object.__setattr__(self, "excess", float(self.excess))
        object.__setattr__(self, "server", float(self.server))

    def __add__(self, other: "Level") -> "Level":
        return Level(self.excess + other.excess, self.server + other.server)

    def scaled(self, factor: float) -> "Level":
        """Return both numbers times `factor`."""
        return Level(self.excess * factor, self.server * factor)


@dataclass(frozen=True, eq=False)
class Recursion:
    """The linear recursion of all second moments, from one download to the next.

    Parameters
    ----------
    lms : WhiteLms or CorrelatedLms
        The clients' LMS step.
    exchanges : tuple of exchanges
        Upload and next download of iterations n = 0, 1, …, in turn and over again; one if they are all alike.
    drawn : Participation
    entries : Entries
    redrawn : bool
        Whether the uploading participants are drawn afresh.
    law : UploadLaw
        What the server receives from whom.
    target : array (D,)
        w*, the error that all start from.
    walk : float
        q: variance of the step each entry of w* takes per iteration. All errors, the server's included, move by the
        same vector, so every block gains q I; downloads and uploads average errors, so it does not matter on
        which side of them the target moves.
    has_direction : bool
        Whether first moments are needed at all.
    """

    lms: WhiteLms | CorrelatedLms
    exchanges: tuple[Exchange, ...]
    drawn: Participation
    entries: Entries
    redrawn: bool
    law: UploadLaw
    target: FloatArray
    walk: float = 0.0
    has_direction: bool = False

    @cached_property
    def initial(self) -> State:
        """The state when all models are 0: every block is w* w*ᵀ."""
        clients, size = self.law.rows, self.entries.size
        if self.entries.is_full:
            block = np.outer(self.target, self.target).ravel()
        else:
            block = np.full(size, float(self.target @ self.target) / self.entries.dimension)
        single = np.tile(block, (clients, 1))
        pair = self.law.without_same(np.tile(block, (clients, clients, 1)))
        return State(ClientMoments(block, single, single, single, single), PairMoments(pair, pair, pair))

    @cached_property
    def initial_first(self) -> FirstMoments:
        """First moments when all models are 0: every one is w*."""
        target = np.array(self.entries.vector(self.target))
        everyone = np.broadcast_to(target, (self.law.rows, *target.shape))
        return FirstMoments(target, everyone, everyone)

    def step(
        self, v: State, n: int = 0, sources: Sources | None = None, first: FirstMoments | None = None
    ) -> State:
        """Take the state after the download of iteration n to that of iteration n + 1.

        `first` are the first moments after the download of iteration n, None to leave out what has a direction.
        """
        sources = Sources() if sources is None else sources
        z = self.lms.clients(v.clients, sources.noise, sources.attack, first)
        pairs = self.lms.pairs(v.pairs, first)
        if first is not None:
            for moments in (pairs.both, pairs.one, pairs.none):
                self.law.without_same(moments)
            first = self._before_upload(first)
        if self.redrawn:
            z, pairs = z.mixed(self.drawn), pairs.mixed(self.drawn, self.entries)
        exchange = self.exchanges[n % len(self.exchanges)]
        if self.entries.shift:
            z, pairs = self._relabelled(z, pairs)
        if isinstance(exchange, FixedMasks):
            following = self._symmetric(*exchange(self.law, z, pairs, first, sources.attack))
        else:
            result = exchange.clients(self.law, z, self.law.sums(pairs), first, sources.attack)
            following = self._symmetric(result.clients, exchange_pairs(exchange, self.law, pairs, result))
        return self._moved(following, sources.drift * self.walk)

    def step_first(self, v: FirstMoments, n: int = 0) -> FirstMoments:
        """Take first moments after the download of iteration n to those of iteration n + 1."""
        return self.exchanges[n % len(self.exchanges)].first(self.law, self._before_upload(v))

    def steady_first(self) -> tuple[FirstMoments, ...]:
        """Find the fixed point of the first moments over one period: what they are at each of its iterations."""
        shape, clients = self.entries.first_shape, self.law.rows
        zero = np.zeros((1 + 2 * clients) * int(np.prod(shape)))

        def period(x: FloatArray) -> FloatArray:
            v = FirstMoments.unpack(x, clients, shape)
            for n in range(len(self.exchanges)):
                v = self.step_first(v, n)
            return v.pack()

        source = period(zero)
        vector = solve_fixed_point(lambda x: period(x) - source, source)
        found = [FirstMoments.unpack(vector, clients, shape)]
        for n in range(len(self.exchanges) - 1):
            found.append(self.step_first(found[-1], n))
        return tuple(found)

    def _before_upload(self, v: FirstMoments) -> FirstMoments:
        z, roll = self.lms.first(v), self.entries.roll_first
        z = z.mixed(self.drawn) if self.redrawn else z
        return FirstMoments(roll(z.server), roll(z.taking), roll(z.idle)) if self.entries.shift else z

    def _moved(self, v: State, walk: float) -> State:
        if walk == 0.0:
            return v
        moved = walk * self.entries.diagonal
        pairs = v.pairs
        gained = (self.law.without_same(x + moved) for x in (pairs.both, pairs.one, pairs.none))
        return State(v.clients.plus(moved), PairMoments(*gained))

    def level(self, v: State | ClientMoments, first: FirstMoments | None = None) -> Level:
        """Excess network MSE and server MSD of a state."""
        clients = v.clients if isinstance(v, State) else v
        own = self.drawn.single * clients.own1 + (1 - self.drawn.single) * clients.own0
        mean = None if first is None else first.average(self.drawn)
        excess = self.law.total(self.lms.excess(own, mean)) / self.drawn.clients
        return Level(float(excess), float(self.entries.trace(clients.server)))

    def curve(self, iterations: int, start: int = 0) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD at iterations 0 … `iterations` − 1, masks beginning at phase `start`."""
        excess, server = np.empty(iterations), np.empty(iterations)
        v = self.initial
        first = self.initial_first if self.has_direction else None
        # A diverging recursion grows to infinity, which is its result.
        with np.errstate(over="ignore", invalid="ignore"):
            for n in range(iterations):
                level = self.level(v, first)
                excess[n], server[n] = level.excess, level.server
                v = self.step(v, start + n, first=first)
                if first is not None:
                    first = self.step_first(first, start + n)
        return excess, server

    def steady_state(self, sources: Sources) -> tuple[Level, State]:
        """Find the fixed point of one period: its level, averaged over the period, and the state at its start."""
        firsts: tuple[FirstMoments | None, ...] = (None,) * len(self.exchanges)
        if sources.direction and self.has_direction:
            firsts = self.steady_first()
        guess = np.zeros(State.length(self.law.rows, self.entries.size))
        vector = solve_fixed_point(
            lambda x: self._period(x, NO_SOURCES).pack(), self._period(guess, sources, firsts).pack()
        )
        v = beginning = self._unpack(vector)
        total = Level(0.0, 0.0)
        for n, first in enumerate(firsts):
            total += self.level(v, first)
            v = self.step(v, n, sources, first)
        return total.scaled(1.0 / len(self.exchanges)), beginning

    def spectral_radius(self) -> float:
        """ρ(𝓕), per iteration."""
        radius = dominant_eigenvalue(lambda x: self._period(x, NO_SOURCES).pack(), self.initial.pack())
        return float(radius ** (1.0 / len(self.exchanges)))

    def _period(
        self, vector: FloatArray, sources: Sources, firsts: tuple[FirstMoments | None, ...] | None = None
    ) -> State:
        v = self._unpack(vector)
        for n in range(len(self.exchanges)):
            v = self.step(v, n, sources, firsts[n] if firsts else None)
        return v

    def _unpack(self, vector: FloatArray) -> State:
        return State.unpack(vector, self.law.rows, self.entries.size)

    def _symmetric(self, v: ClientMoments, pairs: PairMoments) -> State:
        """Make covariances symmetric again: rounding is not, and formulas that rely on symmetry may grow it."""
        if not self.entries.is_full:
            return State(v, pairs)
        flip, flip_pairs = self.entries.flip, self.entries.flip_pairs
        server, own1, own0 = (0.5 * (block + flip(block)) for block in (v.server, v.own1, v.own0))
        both, none = (0.5 * (block + flip_pairs(block)) for block in (pairs.both, pairs.none))
        return State(
            ClientMoments(server, v.cross1, v.cross0, own1, own0), PairMoments(both, pairs.one, none)
        )

    def _relabelled(self, z: ClientMoments, pairs: PairMoments) -> tuple[ClientMoments, PairMoments]:
        roll = self.entries.roll
        return (
            ClientMoments(roll(z.server), roll(z.cross1), roll(z.cross0), roll(z.own1), roll(z.own0)),
            PairMoments(roll(pairs.both), roll(pairs.one), roll(pairs.none)),
        )
