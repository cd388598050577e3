"""One iteration of PSO-Fed on second moments, and the curves and fixed points that follow from iterating it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.exchange import FixedMasks, SeparableExchange, exchange_pairs
from psofed.theory.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.lms import CorrelatedLms, WhiteLms
from psofed.theory.moments import ClientMoments, Entries, PairMoments, Participation, UploadSums

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
    """How much of each source drives the moments: all for the truth, one alone for its term, none for 𝓕."""

    noise: float = 1.0
    attack: float = 1.0
    drift: float = 1.0


NO_SOURCES = Sources(0.0, 0.0, 0.0)


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
    poison : array (K,)
        E[(τ_k δ_k)²] per uploaded entry, 0 for honest clients.
    target : array (D,)
        w*, the error that all start from.
    walk : float
        q: variance of the step each entry of w* takes per iteration. All errors, the server's included, move by the
        same vector, so every block gains q I; downloads and uploads average errors, so it does not matter on
        which side of them the target moves.
    """

    lms: WhiteLms | CorrelatedLms
    exchanges: tuple[Exchange, ...]
    drawn: Participation
    entries: Entries
    redrawn: bool
    poison: FloatArray
    target: FloatArray
    walk: float = 0.0

    @cached_property
    def initial(self) -> State:
        """The state when all models are 0: every block is w* w*ᵀ."""
        clients, size = self.drawn.clients, self.entries.size
        if self.entries.is_full:
            block = np.outer(self.target, self.target).ravel()
        else:
            block = np.full(size, float(self.target @ self.target) / self.entries.dimension)
        single = np.tile(block, (clients, 1))
        pair = np.tile(block, (clients, clients, 1))
        diagonal = np.arange(clients)
        pair[diagonal, diagonal] = 0.0
        return State(ClientMoments(block, single, single, single, single), PairMoments(pair, pair, pair))

    def step(self, v: State, n: int = 0, sources: Sources | None = None) -> State:
        """Take the state after the download of iteration n to that of iteration n + 1."""
        sources = Sources() if sources is None else sources
        z = self.lms.clients(v.clients, sources.noise)
        pairs = self.lms.pairs(v.pairs)
        if self.redrawn:
            z, pairs = z.mixed(self.drawn), pairs.mixed(self.drawn, self.entries)
        poison = sources.attack * self.poison
        exchange = self.exchanges[n % len(self.exchanges)]
        if self.entries.shift:
            z, pairs = self._relabelled(z, pairs)
        if isinstance(exchange, FixedMasks):
            following = self._symmetric(*exchange(z, pairs, poison))
        else:
            result = exchange.clients(z, UploadSums.of(pairs, self.drawn), poison)
            following = self._symmetric(result.clients, exchange_pairs(exchange, pairs, result))
        return self._moved(following, sources.drift * self.walk)

    def _moved(self, v: State, walk: float) -> State:
        if walk == 0.0:
            return v
        moved = walk * self.entries.diagonal
        different = ~np.eye(self.drawn.clients, dtype=bool)[:, :, None]
        pairs = v.pairs
        return State(
            v.clients.plus(moved),
            PairMoments(*(x + moved * different for x in (pairs.both, pairs.one, pairs.none))),
        )

    def level(self, v: State | ClientMoments) -> Level:
        """Excess network MSE and server MSD of a state."""
        clients = v.clients if isinstance(v, State) else v
        own = self.drawn.single * clients.own1 + (1 - self.drawn.single) * clients.own0
        return Level(float(self.lms.excess(own).mean()), float(self.entries.trace(clients.server)))

    def curve(self, iterations: int, start: int = 0) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD at iterations 0 … `iterations` − 1, masks beginning at phase `start`."""
        excess, server = np.empty(iterations), np.empty(iterations)
        v = self.initial
        # A diverging recursion grows to infinity, which is its result.
        with np.errstate(over="ignore", invalid="ignore"):
            for n in range(iterations):
                level = self.level(v)
                excess[n], server[n] = level.excess, level.server
                v = self.step(v, start + n)
        return excess, server

    def steady_state(self, sources: Sources) -> tuple[Level, State]:
        """Find the fixed point of one period: its level, averaged over the period, and the state at its start."""
        guess = np.zeros(State.length(self.drawn.clients, self.entries.size))
        vector = solve_fixed_point(
            lambda x: self._period(x, NO_SOURCES).pack(), self._period(guess, sources).pack()
        )
        v = first = self._unpack(vector)
        total = Level(0.0, 0.0)
        for n in range(len(self.exchanges)):
            total += self.level(v)
            v = self.step(v, n, sources)
        return total.scaled(1.0 / len(self.exchanges)), first

    def spectral_radius(self) -> float:
        """ρ(𝓕), per iteration."""
        radius = dominant_eigenvalue(lambda x: self._period(x, NO_SOURCES).pack(), self.initial.pack())
        return float(radius ** (1.0 / len(self.exchanges)))

    def _period(self, vector: FloatArray, sources: Sources) -> State:
        v = self._unpack(vector)
        for n in range(len(self.exchanges)):
            v = self.step(v, n, sources)
        return v

    def _unpack(self, vector: FloatArray) -> State:
        return State.unpack(vector, self.drawn.clients, self.entries.size)

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
