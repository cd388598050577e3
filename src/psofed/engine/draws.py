"""Draws ahead for some iterations: who takes part, masks, Byzantine sets, delays, moves of the target.

Masks depend on stream, iteration and client alone. So the mask that a client uploads with is the one it downloads with
next.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import PsofedError
from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.attacks import draw_byzantine
from psofed.engine.hooks import Method, run_method
from psofed.engine.lanes import WIDTH
from psofed.engine.network import Delays
from psofed.engine.normals import fill_standard_normal, half_uniform_at, normals_at
from psofed.engine.participants import NO_PRESENCE, AvailableClients, Choice
from psofed.engine.streams import Stream
from psofed.engine.tables import Table
from psofed.parts.base import Drift
from psofed.parts.contexts import Mask, Step

if TYPE_CHECKING:
    from psofed.engine.state import Setup
    from psofed.scenario import Scenario

# About how many bytes of participants and masks are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000

# About how many client updates are made at a time: whoever watches or stops a run waits for no more.
_CHUNK_UPDATES = 100_000_000


class Draws(Table):
    """Draws of T iterations; none before anything is drawn.

    Attributes
    ----------
    participants, uploaders : int array (T, L, P)
        Clients that download, and clients that upload.
    downloads, uploads : bool array (T, L, P), or empty
        Whether each is reached; all are if it is empty.
    asked : int array (T, L)
        Number of clients that were asked to upload.
    learns : uint8 array (T, V, 16), or empty
        1 for each column that learns; all do if it is empty.
    downloaded, uploaded : int array (T, L, P or 1, M), or empty
        The entries each of them exchanges; empty where everything is exchanged without models.
    exchanges : int array (T,)
        How many of the participants drawn exchange in each iteration.
    byzantine : int array (T, L, |S_B|)
        The Byzantine set of each iteration, where it is redrawn; else empty.
    durations : int array (T, L, P), or empty
        Delays of the uploads; negative if they are lost.
    moves : array (T, D, 16), or empty
        w*_n − w*_0.
    inputs, residuals : arrays (T, K, D, L, 16 or 1) and (T, K, L, 16 or 1), or empty
        Given samples, see :class:`psofed.engine.samples.Chunk`.
    watched_from : int
        From which iteration on each column's squared errors are added up.
    """

    def __init__(self) -> None:
        self.participants: IndexArray = np.zeros((0, 0, 0), np.int32)
        self.uploaders: IndexArray = self.participants
        self.downloads: BoolArray = np.zeros((0, 0, 0), np.bool_)
        self.uploads: BoolArray = self.downloads
        self.asked: IntArray = np.zeros((0, 0), np.int64)
        self.learns: NDArray[np.uint8] = np.zeros((0, 0, 0), np.uint8)
        self.downloaded: IndexArray = np.zeros((0, 0, 0, 0), np.int32)
        self.uploaded: IndexArray = self.downloaded
        self.exchanges: IntArray = np.zeros(0, np.int64)
        self.byzantine: IndexArray = self.participants
        self.durations: IntArray = np.zeros((0, 0, 0), np.int64)
        self.moves: FloatArray = np.zeros((0, 0, 0))
        self.inputs: FloatArray = np.zeros((0, 0, 0, 0))
        self.residuals: FloatArray = np.zeros((0, 0, 0))
        self.watched_from = 0


class Drawer:
    """Draws all this for a block of trials, chunk by chunk in order.

    Attributes
    ----------
    chunk : int
        How many iterations to draw at a time.
    upload_counts : int array (K, L)
        How often each client has uploaded; empty unless a channel is private.
    """

    def __init__(self, setup: "Setup", bytes_of_samples: int) -> None:
        self._setup, scenario, self._most = setup, setup.scenario, setup.participants
        algorithm, clients, dimension = scenario.algorithm, scenario.num_clients, scenario.dimension
        availability, links = scenario.availability, scenario.channel
        self._participation = np.array(setup.stream("participation"))
        self._uplink = np.array(setup.stream("uplink")) if scenario.uplink == "redrawn" else None
        self._masks = Masks(scenario, setup.stream("masks")) if algorithm.holds_models else None
        self._traffic = None if algorithm.holds_models else algorithm.traffic(scenario)
        self._available = self._delays = self._moves = None
        if availability is not None:
            shares, size = (availability.shares(clients, scenario.data.fleet_seed), availability.memory_size(dimension))
            stream = setup.stream("availability")
            self._available = AvailableClients(availability, shares, stream, setup.layout, size)
        if scenario.delay is not None:
            self._delays = Delays(scenario.delay, setup.stream("delay"), clients, dimension)
        if scenario.drift is not None:
            self._moves = TargetMoves(scenario.drift, dimension, setup.stream("drift"))
        counts = links is not None and any(channel.kind == "private" for channel in links.up)
        self.upload_counts: IntArray = np.zeros((clients if counts else 0, len(setup.trials)), np.int64)
        self.chunk: int = self._chunk_size(bytes_of_samples)

    def draw(self, first: int, count: int) -> Draws:
        """Draw `count` iterations from number `first` on."""
        scenario, trials = self._setup.scenario, len(self._setup.trials)
        exchanges = np.full(count, self._most)
        if self._traffic is not None:
            exchanges = np.array([self._traffic.exchanges_in(first + t) for t in range(count)], np.int64)
        draws = self._draw_participants(first, count, exchanges)
        if self._masks is not None and scenario.selection.coordinated:
            # What is uploaded is what all download next.
            entries = self._masks.draw(first, count + 1, draws.participants)
            draws.downloaded, draws.uploaded = entries[:-1], entries[1:]
        elif self._masks is not None:
            draws.downloaded = self._masks.draw(first, count, draws.participants)
            draws.uploaded = self._masks.draw(first + 1, count, draws.uploaders)
        for attack in scenario.attacks:  # a set that is redrawn is the only one
            if attack.byzantine_set == "redrawn" and attack.num_byzantine:
                stream = self._setup.stream("attack")
                draws.byzantine = draw_byzantine(attack, stream, first, count, scenario.num_clients)
        if self._delays is not None:
            draws.durations = self._delays.draw(first, draws.uploaders, draws.asked)
        if self._moves is not None:
            draws.moves = np.zeros((count, scenario.dimension, WIDTH))
            draws.moves[:, :, :trials] = self._moves.draw(first, count)
        return draws

    def _draw_participants(self, first: int, count: int, exchanges: IntArray) -> Draws:
        """Draw who takes part; ``exchanges`` (T,) of those drawn do in each iteration."""
        availability, layout = self._setup.scenario.availability, self._setup.layout
        present = NO_PRESENCE if self._available is None else self._available.draw(first, count)
        knows = availability is not None and availability.server_knows
        down = up = Choice(self._participation, first, count, self._most, layout, present, knows)
        if self._uplink is not None:
            up = Choice(self._uplink, first, count, self._most, layout, present, knows)
        downloads, uploads, asked = down.reached, up.reached, up.asked
        if (exchanges < self._most).any():
            is_asked = np.arange(self._most) < exchanges[:, None, None]
            downloads = uploads = np.broadcast_to(is_asked, down.participants.shape) & (
                downloads if downloads.size else True
            )
            asked = np.minimum(asked, exchanges[:, None])
        if self.upload_counts.size:
            trials = np.arange(len(self._setup.trials))[None, :, None]
            np.add.at(self.upload_counts, (up.participants, trials), uploads if uploads.size else 1)
        draws = Draws()
        draws.participants, draws.uploaders = down.participants, up.participants
        draws.downloads, draws.uploads, draws.asked, draws.exchanges = downloads, uploads, asked, exchanges
        if availability is not None and availability.learns == "available":
            draws.learns = present.view(np.uint8)
        return draws

    def _chunk_size(self, bytes_of_samples: int) -> int:
        scenario, trials = self._setup.scenario, len(self._setup.trials)
        exchanged = self._setup.participants * (self._setup.numbers + 1) * trials
        if scenario.availability is not None:
            exchanged += scenario.num_clients * WIDTH // 8
        redrawn = (attack for attack in scenario.attacks if attack.byzantine_set == "redrawn")
        exchanged += sum(attack.num_byzantine for attack in redrawn) * trials // 2
        most = int(np.clip(_CHUNK_UPDATES // (scenario.num_clients * trials), 1, 1024))
        size = int(np.clip(_CHUNK_BYTES // (8 * exchanged), 1, most))
        return int(np.clip(_CHUNK_BYTES // max(bytes_of_samples, 1), 1, size))


class Masks:
    """Draws the masks of several trials."""

    def __init__(self, scenario: "Scenario", stream: Stream) -> None:
        self._scenario, self._stream = scenario, np.array(stream)

    def draw(self, first: int, count: int, clients: IndexArray) -> IndexArray:
        """Return the entries that ``clients`` (T, L, P) share from iteration `first` on, shape (T, L, P or 1, M).

        One row stands for all clients where masks are coordinated, and where everything is shared. Then T = `count`
        may be more than the iterations that clients are given for.
        """
        scenario, coordinated = self._scenario, self._scenario.selection.coordinated
        pattern, shared, dimension = scenario.selection.pattern, scenario.num_shared, scenario.dimension
        rows = 1 if coordinated or shared == dimension else clients.shape[2]
        out = np.empty((count, clients.shape[1], rows, shared), np.int32)
        if shared == dimension:
            out[:] = np.arange(dimension, dtype=np.int32)
            return out
        run_method(
            pattern, "select", _draw_masks, first, stream=self._stream, clients=clients, dimension=dimension,
            num_clients=scenario.num_clients, coordinated=coordinated, entries=out,
        )  # fmt: skip
        if not type(pattern).__module__.startswith("psofed."):
            ordered = np.sort(out, axis=3)
            if ordered.min() < 0 or ordered.max() >= dimension or (np.diff(ordered, axis=3) == 0).any():
                raise PsofedError(
                    f'pattern "{pattern.kind}" must choose {shared} distinct entries between 0 and {dimension - 1}'
                )
        return out


def _draw_masks(method: Method, first: int, k: int, g: int, table: Any) -> None:
    stream, clients, coordinated, out = table.stream, table.clients, table.coordinated, table.entries
    num_clients, (iterations, trials, rows, shared) = table.num_clients, out.shape
    uniforms, chosen = np.empty(shared), np.zeros(shared, np.int64)
    for t in range(iterations):
        n = first + t
        for trial in range(trials):
            for p in range(rows):
                client: Any = 0 if coordinated else np.int64(clients[t, trial, p])
                number = n if coordinated else n * num_clients + client
                for m in range(shared):
                    uniforms[m] = half_uniform_at(stream, trial, number * shared + m)
                own = half_uniform_at(stream, trial, client)
                method(table.options, None, Mask(n, client, table.dimension, shared, uniforms, own), chosen)
                for m in range(shared):
                    out[t, trial, p, m] = chosen[m]


class TargetMoves:
    """The moves w*_n − w*_0 of several trials, drawn in order.

    Parameters
    ----------
    drift : Drift
        How the target moves.
    dimension : int
        D.
    stream : Stream
        Its randomness, which is nobody else's: a drift never changes data, participants, masks or attack.
    """

    def __init__(self, drift: Drift, dimension: int, stream: Stream) -> None:
        self._drift, self._stream = drift, np.array(stream)
        self._direction = draw_direction(stream, dimension)
        self._position = np.zeros((dimension, stream.key.size))

    def draw(self, first: int, count: int) -> FloatArray:
        """Return w*_n − w*_0 of the next `count` iterations, the first of them `first`; shape (count, D, L)."""
        moves = np.empty((count, *self._position.shape))
        run_method(
            self._drift, "move", _draw_moves, first, stream=self._stream, direction=self._direction,
            position=self._position, moves=moves,
        )  # fmt: skip
        return moves


def draw_direction(stream: Stream, dimension: int) -> FloatArray:
    """Draw a unit vector for each trial, uniform over the sphere, shape (D, L)."""
    normals = np.empty((2 * ((dimension + 1) // 2), stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    vectors = normals[:dimension].astype(np.float64)
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=0))


def _draw_moves(method: Method, first: int, k: int, g: int, table: Any) -> None:
    position, out = table.position, table.moves
    dimension, trials = position.shape
    half = (dimension + 1) // 2
    normals, before, unit = np.empty(2 * half), np.empty(dimension), np.empty(dimension)
    for t in range(out.shape[0]):
        for trial in range(trials):
            # The first words are the direction's.
            for j in range(half):
                word = (first + t + 1) * half + j
                normals[2 * j], normals[2 * j + 1] = normals_at(table.stream, trial, word)
            for i in range(dimension):
                before[i] = position[i, trial]
                unit[i] = table.direction[i, trial]
            after = method(table.options, None, Step(first + t, before, normals[:dimension], unit))
            for i in range(dimension):
                position[i, trial] = after[i]
                out[t, i, trial] = after[i]
