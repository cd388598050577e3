"""Draws ahead for some iterations: who is available and takes part, masks, Byzantine sets, delays, moves of the target.

In each iteration |S_n| clients take part, drawn uniformly without replacement by a partial Fisher–Yates shuffle that is
addressed by words: draw number c swaps place c with a place from c on, and the value that arrives in place c is chosen.
Each choice starts from the identity, so it depends on its own words alone.

Masks depend on stream, iteration and client alone. So the mask that a client uploads with is the one it downloads with
next.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import PsofedError
from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import Method, run_method
from psofed.engine.lanes import WIDTH, empty_lanes, filled, load, pick, spread, store
from psofed.engine.normals import (
    bounded,
    fill_standard_normal,
    half_uniform_at,
    mix_word,
    normals_at,
    uniform_at,
    unit_uniform,
)
from psofed.engine.state import Layout, Setup, column
from psofed.engine.step import WordSource
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import KernelTable, TableData
from psofed.parts.base import Attack, Drift
from psofed.parts.contexts import Departure, Mask, Presence, Step
from psofed.parts.network import Availability, Delay
from psofed.parts.plain import check_size
from psofed.scenario import Scenario

# About how many bytes of participants and masks are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000

# Words of an attack's stream from here on redraw the Byzantine set.
_REDRAWN = np.uint64(1 << 63)

# Up to this many participants are drawn for sixteen trials at once.
_FEW = 12

NO_PRESENCE: BoolArray = np.zeros((0, 0, 0), np.bool_)

# About how many client updates are made at a time: whoever watches or stops a run waits for no more.
_CHUNK_UPDATES = 100_000_000


class Draws(TableData):
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

    def __init__(self, setup: Setup, bytes_of_samples: int) -> None:
        self._setup, scenario, self._most = setup, setup.scenario, setup.participants
        algorithm, clients, dimension = scenario.algorithm, scenario.num_clients, scenario.dimension
        availability, links = scenario.availability, scenario.channel
        self._participation = np.array(setup.stream("participation"))
        self._uplink = np.array(setup.stream("uplink")) if scenario.uplink == "redrawn" else None
        self._masks = np.array(setup.stream("masks"))
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
        if self._traffic is None and scenario.selection.coordinated:
            # What is uploaded is what all download next.
            entries = draw_masks(scenario, self._masks, first, count + 1, draws.participants)
            draws.downloaded, draws.uploaded = entries[:-1], entries[1:]
        elif self._traffic is None:
            draws.downloaded = draw_masks(scenario, self._masks, first, count, draws.participants)
            draws.uploaded = draw_masks(scenario, self._masks, first + 1, count, draws.uploaders)
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
        most = int(np.clip(_CHUNK_UPDATES // (scenario.num_clients * trials), 1, 4096))
        size = int(np.clip(_CHUNK_BYTES // (8 * exchanged), 1, most))
        return int(np.clip(_CHUNK_BYTES // max(bytes_of_samples, 1), 1, size))


def draw_masks(scenario: Scenario, stream: WordArray, first: int, count: int, clients: IndexArray) -> IndexArray:
    """Return the entries that ``clients`` (T, L, P) share from iteration `first` on, shape (T, L, P or 1, M).

    One row stands for all clients where masks are coordinated, and where everything is shared. Then T = `count` may be
    more than the iterations that clients are given for.
    """
    pattern, coordinated = scenario.selection.pattern, scenario.selection.coordinated
    shared, dimension = scenario.num_shared, scenario.dimension
    rows = 1 if coordinated or shared == dimension else clients.shape[2]
    out = np.empty((count, clients.shape[1], rows, shared), np.int32)
    if shared == dimension:
        out[:] = np.arange(dimension, dtype=np.int32)
        return out
    run_method(
        pattern, "select", _draw_masks, first, stream=stream, clients=clients, dimension=dimension,
        num_clients=scenario.num_clients, coordinated=coordinated, entries=out,
        uniforms=np.empty(shared), chosen=np.zeros(shared, np.int64),
    )  # fmt: skip
    if not type(pattern).__module__.startswith("psofed."):
        ordered = np.sort(out, axis=3)
        if ordered.min() < 0 or ordered.max() >= dimension or (np.diff(ordered, axis=3) == 0).any():
            raise PsofedError(
                f'pattern "{pattern.kind}" must choose {shared} distinct entries between 0 and {dimension - 1}'
            )
    return out


def _draw_masks(method: Method, first: int, k: int, g: int, table: Any) -> None:
    stream, coordinated, out = table.stream, table.coordinated, table.entries
    num_clients, (iterations, trials, rows, shared) = table.num_clients, out.shape
    uniforms, chosen = table.uniforms, table.chosen  # of Python: made here, each call would count references to them
    for t in range(iterations):
        n = first + t
        for trial in range(trials):
            for p in range(rows):
                client: Any = 0 if coordinated else np.int64(table.clients[t, trial, p])
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
                position[i, trial] = after[i] if i < len(after) else np.nan
                out[t, i, trial] = position[i, trial]


class Choice(TableData):
    """Up to `most` participants in each of `count` iterations from number `first` on.

    Parameters
    ----------
    stream : array (2, L)
        Their randomness.
    first, count, most : int
    layout : Layout
        Where columns stand.
    present : bool array (T, V, 16), or empty
        Who is available.
    only_present : bool
        Whether participants are drawn from those available, all of them if there are too few.

    Attributes
    ----------
    participants : int array (T, L, P)
        The participants; places that stay empty hold different clients that are not available.
    reached : bool array (T, L, P), or empty
        Whether there is an available client in each place; empty if all clients are available.
    asked : int array (T, L)
        How many participants are asked to upload.
    numbers, swapped : int arrays (K,) and (P,)
        Scratch.
    lanes, scratch : arrays (2, 16) and (3, P, 16)
        The streams as lanes, and scratch to draw few participants of many trials.
    """

    def __init__(
        self,
        stream: WordArray,
        first: int,
        count: int,
        most: int,
        layout: Layout,
        present: BoolArray = NO_PRESENCE,
        only_present: bool = False,
    ) -> None:
        shape = (count, stream.shape[1], most)
        self.stream, self.layout = stream, layout
        self.present, self.only_present = present, only_present and present.size > 0
        self.numbers = np.arange(layout.clients, dtype=np.int32)
        self.swapped = np.empty(most, np.int64)
        self.lanes: WordArray = filled(0, 2, WIDTH, dtype=np.uint64)
        self.lanes[:, : stream.shape[1]] = stream[:, :WIDTH]
        self.scratch: WordArray = empty_lanes(3, most if most <= _FEW else 0, WIDTH, dtype=np.uint64)
        self.participants: IndexArray = np.empty(shape, np.int32)
        self.reached = np.empty(shape if present.size else (0, 0, 0), np.bool_)
        self.asked = np.full(shape[:2], most)
        table: Any = KernelTable(self)
        _fill(first, table)


def draw_participants(stream: Stream, first: int, count: int, clients: int, most: int) -> IndexArray:
    """Draw `most` different clients in each of `count` iterations from number `first` on, shape (T, L, most)."""
    return Choice(np.array(stream), first, count, most, Layout(clients, 0, 0)).participants


@compiled
def _fill(first: int, choice: Choice) -> None:
    stream, present, numbers, only_present = choice.stream, choice.present, choice.numbers, choice.only_present
    layout, out, (iterations, trials, participants) = choice.layout, choice.participants, choice.participants.shape
    in_lanes = participants <= _FEW and 1 < trials <= WIDTH and not only_present
    for t in range(iterations):
        if in_lanes:
            _choose_in_lanes(first + t, choice.lanes, choice.scratch, numbers.size, out[t])
        for trial in range(trials):
            gamma = stream[1, trial]
            word = stream[0, trial] + np.uint64((first + t) * participants) * gamma
            size = numbers.size
            if only_present:
                size = 0
                for k in range(numbers.size):  # without a branch, which nobody could foresee
                    v, lane = column(layout, k, trial)
                    numbers[size] = k
                    size += int(present[t, v, lane])
                choice.asked[t, trial] = min(participants, size)
            if not in_lanes:
                _choose(word, gamma, size, numbers, choice.swapped, out[t, trial])
            # Others stand in places that stay empty.
            for k in range(numbers.size if only_present and size < participants else 0):
                v, lane = column(layout, k, trial)
                if size < participants and not present[t, v, lane]:
                    out[t, trial, size] = k
                    size += 1
            for p in range(participants if present.size else 0):
                v, lane = column(layout, np.int64(out[t, trial, p]), trial)
                choice.reached[t, trial, p] = present[t, v, lane]


@kernel_part
def _choose(
    word: np.uint64, gamma: np.uint64, size: int, numbers: IndexArray, swapped: IntArray, out: IndexArray
) -> None:
    """Fill ``out`` with distinct members of the first `size` of ``numbers``, which are swapped and swapped back."""
    count = out.size
    for c in range(count):
        place = c + bounded(mix_word(word), max(size - c, 1))
        word += gamma
        swapped[c] = place
        numbers[c], numbers[place] = numbers[place], numbers[c]
        out[c] = numbers[c]
    for c in range(count - 1, -1, -1):
        numbers[c], numbers[swapped[c]] = numbers[swapped[c]], numbers[c]


@kernel_part
def _choose_in_lanes(n: int, lanes: WordArray, scratch: WordArray, size: int, out: IndexArray) -> None:
    """Do the same for sixteen trials at once, whose streams are ``lanes`` (2, 16), without an array to swap in.

    What stands in a place is followed through the swaps before: ``scratch`` (3, P, 16) has the place that each of them
    swapped with, what it put there, and what was chosen.
    """
    trials, count = out.shape
    gamma, last = load(lanes, WIDTH), count * WIDTH
    word = load(lanes, 0) + np.uint64(n * count) * gamma
    for c in range(count):
        place = np.uint64(c) + (((mix_word(word) >> np.uint64(32)) * np.uint64(size - c)) >> np.uint64(32))
        chosen, displaced = place, spread(np.uint64(c))
        word = word + gamma
        for earlier in range(c):
            swapped, moved = load(scratch, earlier * WIDTH), load(scratch, last + earlier * WIDTH)
            chosen = pick(swapped ^ place, chosen, moved)
            displaced = pick(swapped ^ spread(np.uint64(c)), displaced, moved)
        store(scratch, c * WIDTH, place)
        store(scratch, last + c * WIDTH, displaced)
        store(scratch, 2 * last + c * WIDTH, chosen)
    for trial in range(trials):
        for c in range(count):
            out[trial, c] = scratch[2, c, trial]


class AvailableClients:
    """Which clients are available in several trials, drawn in order.

    Parameters
    ----------
    availability : Availability
        The part.
    shares : array (K,)
        Share of the time that each client is available.
    stream : Stream
        Its randomness, which is nobody else's: data, masks and attack do not depend on who is available.
    layout : Layout
        Where columns stand.
    memory_size : int
        Values that it keeps for each client.
    """

    def __init__(
        self, availability: Availability, shares: FloatArray, stream: Stream, layout: Layout, memory_size: int = 0
    ) -> None:
        check_size(f'availability.kind = "{availability.kind}"', shares.size * memory_size)
        words = stream.words(0, shares.size).T
        uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
        self._availability, self._before = availability, np.zeros((layout.vectors, WIDTH), np.bool_)
        self._fields = {
            "source": WordSource(stream, layout, 1), "layout": layout, "shares": shares,
            "client_uniforms": np.ascontiguousarray(uniforms),
            "memory": np.zeros((stream.key.size, shares.size, memory_size)), "uniforms": empty_lanes(WIDTH),
        }  # fmt: skip

    def draw(self, first: int, count: int) -> BoolArray:
        """Return who is available in the next `count` iterations, the first of them `first`; shape (T, V, 16)."""
        present: BoolArray = filled(False, count + 1, *self._before.shape, dtype=np.bool_)
        present[0] = self._before
        run_method(self._availability, "is_available", _draw_presence, first, present=present, **self._fields)
        self._before = present[-1]
        return present[1:]


def _draw_presence(method: Method, first: int, k: int, g: int, table: Any) -> None:
    """Frame of an availability; the columns' random numbers are one word for each iteration, shape (16,)."""
    source, shares, own, memory = table.source, table.shares, table.client_uniforms, table.memory
    out, uniforms, shift, mask = table.present, table.uniforms, table.layout.shift, table.layout.mask
    trials, num_clients = own.shape
    for t in range(1, out.shape[0]):
        n = first + t - 1
        for v in range(out.shape[1]):
            # The first K words are drawn once per client.
            _fill_uniforms(source.origin, source.stride, source.hop, n + 1, v, uniforms)
            for lane in range(uniforms.size if mask else trials):
                client, trial = (v << shift) + (lane & mask), lane if mask == 0 else 0
                if client >= num_clients:
                    continue
                presence = Presence(
                    n, client, num_clients, shares[client], uniforms[lane], own[trial, client], out[t - 1, v, lane]
                )
                out[t, v, lane] = bool(method(table.options, memory[trial, client], presence))


@kernel_part
def _fill_uniforms(origin: WordArray, stride: WordArray, hop: WordArray, n: int, v: int, out: FloatArray) -> None:
    """Write a uniform number for each column of a vector in iteration n, where :class:`WordSource` says."""
    word = load(origin, 0) + np.uint64(n) * load(stride, 0) + np.uint64(v) * load(hop, 0)
    store(out, 0, unit_uniform(mix_word(word)))


def draw_byzantine(attack: Attack, stream: Stream, first: int, count: int, clients: int) -> IndexArray:
    """Draw the Byzantine sets of `count` iterations from number `first` on, shape (T, L, |S_B|)."""
    stream = Stream(stream.key + _REDRAWN * stream.gamma, stream.gamma)
    return draw_participants(stream, first, count, clients, attack.num_byzantine)


class Delays:
    """Draws how long uploads are on their way, in several trials."""

    def __init__(self, delay: Delay, stream: Stream, num_clients: int, dimension: int) -> None:
        size = delay.memory_size(dimension)
        check_size(f'delay.kind = "{delay.kind}"', num_clients * size)
        self._delay, self._stream = delay, np.array(stream)
        self._memory = np.zeros((stream.key.size, num_clients, size))

    def draw(self, first: int, uploaders: IndexArray, asked: IntArray) -> IntArray:
        """Return the delays of uploads (T, L, P) made from iteration `first` on, negative if they are lost.

        ``asked`` (T, L) says how many of the ``uploaders`` are asked; later places are lost.
        """
        durations: IntArray = np.full(uploaders.shape, -1)
        run_method(
            self._delay, "duration", _draw_durations, first, stream=self._stream, clients=uploaders, asked=asked,
            memory=self._memory, durations=durations,
        )  # fmt: skip
        return np.minimum(durations, self._delay.longest_delay())


def _draw_durations(method: Method, first: int, k: int, g: int, table: Any) -> None:
    stream, clients, memory, out = table.stream, table.clients, table.memory, table.durations
    num_clients = memory.shape[1]
    for t in range(out.shape[0]):
        n = first + t
        for trial in range(out.shape[1]):
            for p in range(table.asked[t, trial]):
                client: Any = np.int64(clients[t, trial, p])
                departure = Departure(client, n, uniform_at(stream, trial, n * num_clients + client))
                out[t, trial, p] = method(table.options, memory[trial, client], departure)
