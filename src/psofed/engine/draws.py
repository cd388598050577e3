"""Draws ahead for some iterations: who takes part, masks, Byzantine sets, delays, moves, samples."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.attackers import draw_byzantine
from psofed.engine.availability import AvailableClients
from psofed.engine.delays import Delays
from psofed.engine.drift import TargetMoves
from psofed.engine.lanes import WIDTH
from psofed.engine.masks import Masks
from psofed.engine.participants import NO_PRESENCE, draw_choice, fill_places

if TYPE_CHECKING:
    from psofed.engine.state import Setup

# About how many bytes of participants and masks are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000

# About how many client updates are made at a time: whoever watches or stops a run waits for no more.
_CHUNK_UPDATES = 100_000_000


class Draws(NamedTuple):
    """Draws of T iterations.

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

    participants: IndexArray
    uploaders: IndexArray
    downloads: BoolArray
    uploads: BoolArray
    asked: IntArray
    learns: NDArray[np.uint8]
    downloaded: IndexArray
    uploaded: IndexArray
    exchanges: IntArray
    byzantine: IndexArray
    durations: IntArray
    moves: FloatArray
    inputs: FloatArray
    residuals: FloatArray
    watched_from: int


_NO_CLIENTS, _NO_ENTRIES = np.zeros((0, 0, 0), np.int32), np.zeros((0, 0, 0, 0), np.int32)
_NO_FLAGS, _NO_DELAYS = np.zeros((0, 0, 0), np.bool_), np.zeros((0, 0, 0), np.int64)

# For a block before anything is drawn.
NO_DRAWS = Draws(
    _NO_CLIENTS, _NO_CLIENTS, _NO_FLAGS, _NO_FLAGS, np.zeros((0, 0), np.int64), np.zeros((0, 0, 0), np.uint8),
    _NO_ENTRIES, _NO_ENTRIES, np.zeros(0, np.int64), _NO_CLIENTS, _NO_DELAYS, np.zeros((0, 0, 0)),
    np.zeros((0, 0, 0, 0)), np.zeros((0, 0, 0)), 0,
)  # fmt: skip


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

    def draw(self, first: int, count: int, samples: tuple[FloatArray, FloatArray], watched_from: int) -> Draws:
        """Draw `count` iterations from number `first` on; ``samples`` are given inputs and residuals."""
        scenario, trials = self._setup.scenario, len(self._setup.trials)
        exchanges = np.full(count, self._most)
        if self._traffic is not None:
            exchanges = np.array([self._traffic.exchanges_in(first + t) for t in range(count)], np.int64)
        draws = self._draw_participants(first, count, exchanges)
        if self._masks is not None and scenario.selection.coordinated:
            # What is uploaded is what all download next.
            entries = self._masks.draw(first, count + 1, draws.participants)
            draws = draws._replace(downloaded=entries[:-1], uploaded=entries[1:])
        elif self._masks is not None:
            downloaded = self._masks.draw(first, count, draws.participants)
            uploaded = self._masks.draw(first + 1, count, draws.uploaders)
            draws = draws._replace(downloaded=downloaded, uploaded=uploaded)
        for attack in scenario.attacks:  # a set that is redrawn is the only one
            if attack.byzantine_set == "redrawn" and attack.num_byzantine:
                stream = self._setup.stream("attack")
                byzantine = draw_byzantine(attack, stream, first, count, scenario.num_clients)
                draws = draws._replace(byzantine=byzantine)
        if self._delays is not None:
            draws = draws._replace(durations=self._delays.draw(first, draws.uploaders, draws.asked))
        if self._moves is not None:
            moves = np.zeros((count, scenario.dimension, WIDTH))
            moves[:, :, :trials] = self._moves.draw(first, count)
            draws = draws._replace(moves=moves)
        return draws._replace(inputs=samples[0], residuals=samples[1], watched_from=watched_from)

    def _draw_participants(self, first: int, count: int, exchanges: IntArray) -> Draws:
        """Draw who takes part; ``exchanges`` (T,) of those drawn do in each iteration."""
        availability, layout = self._setup.scenario.availability, self._setup.layout
        present = NO_PRESENCE if self._available is None else self._available.draw(first, count)
        knows = availability is not None and availability.server_knows
        down = up = draw_choice(self._participation, first, count, present, knows, layout, self._most)
        if self._uplink is not None:
            up = draw_choice(self._uplink, first, count, present, knows, layout, self._most)
        downloads, uploads, asked = down.reached, up.reached, up.asked
        if (exchanges < self._most).any():
            if knows:
                fill_places(present, layout.shift, layout.mask, layout.clients, asked, down.participants)
            is_asked = np.arange(self._most) < exchanges[:, None, None]
            downloads = uploads = np.broadcast_to(is_asked, down.participants.shape) & (
                downloads if downloads.size else True
            )
            asked = np.minimum(asked, exchanges[:, None])
        if self.upload_counts.size:
            trials = np.arange(len(self._setup.trials))[None, :, None]
            np.add.at(self.upload_counts, (up.participants, trials), uploads if uploads.size else 1)
        draws = NO_DRAWS._replace(
            participants=down.participants, uploaders=up.participants, downloads=downloads, uploads=uploads,
            asked=asked, exchanges=exchanges,
        )  # fmt: skip
        if availability is not None and availability.learns == "available":
            draws = draws._replace(learns=present.view(np.uint8))
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
