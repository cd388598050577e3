"""What is drawn ahead for some iterations: who takes part, masks, Byzantine sets, delays, moves, samples."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.attackers import draw_byzantine
from psofed.engine.availability import NO_LEARNERS, Drawing, Participants
from psofed.engine.delays import Delays
from psofed.engine.drift import TargetMoves
from psofed.engine.lanes import WIDTH
from psofed.engine.masks import Masks

if TYPE_CHECKING:
    from psofed.engine.state import Setup

# About how many bytes of participants and masks are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000

# About how many client updates are made at a time: whoever watches or stops a run waits for no more.
_CHUNK_UPDATES = 100_000_000


class Draws(NamedTuple):
    """What is drawn for T iterations.

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
    _NO_CLIENTS, _NO_CLIENTS, _NO_FLAGS, _NO_FLAGS, np.zeros((0, 0), np.int64), NO_LEARNERS, _NO_ENTRIES, _NO_ENTRIES,
    np.zeros(0, np.int64), _NO_CLIENTS, _NO_DELAYS, np.zeros((0, 0, 0)), np.zeros((0, 0, 0, 0)), np.zeros((0, 0, 0)), 0,
)  # fmt: skip


class Drawer:
    """Draws all this for a block of trials, chunk by chunk in order.

    Attributes
    ----------
    chunk : int
        How many iterations to draw at a time.
    participants : Drawing
        Draws the participants.
    """

    def __init__(self, setup: "Setup", bytes_of_samples: int) -> None:
        self._setup, scenario = setup, setup.scenario
        algorithm = scenario.algorithm
        self.participants = Drawing(setup)
        self._masks = Masks(scenario, setup.stream("masks")) if algorithm.holds_models else None
        self._traffic = None if algorithm.holds_models else algorithm.traffic(scenario)
        self._delays = self._moves = None
        if scenario.delay is not None:
            entries = scenario.dimension
            self._delays = Delays(scenario.delay, setup.stream("delay"), scenario.num_clients, entries)
        if scenario.drift is not None:
            self._moves = TargetMoves(scenario.drift, scenario.dimension, setup.stream("drift"))
        self.chunk: int = self._chunk_size(bytes_of_samples)

    def draw(
        self, first: int, count: int, inputs: FloatArray, residuals: FloatArray, watched_from: int
    ) -> Draws:
        """Draw `count` iterations from number `first` on; ``inputs`` and ``residuals`` are given samples."""
        scenario, trials = self._setup.scenario, len(self._setup.trials)
        exchanges = np.full(count, self._setup.participants)
        if self._traffic is not None:
            exchanges = np.array([self._traffic.exchanges_in(first + t) for t in range(count)], np.int64)
        drawn = self.participants.draw(first, count, exchanges)
        byzantine, durations, moves = NO_DRAWS.byzantine, NO_DRAWS.durations, NO_DRAWS.moves
        if (
            scenario.attacks
            and scenario.attacks[0].byzantine_set == "redrawn"
            and scenario.attacks[0].num_byzantine
        ):
            stream = self._setup.stream("attack")
            byzantine = draw_byzantine(scenario.attacks[0], stream, first, count, scenario.num_clients)
        if self._delays is not None:
            durations = self._delays.draw(first, drawn.uploaders, drawn.asked)
        if self._moves is not None:
            moves = np.zeros((count, scenario.dimension, WIDTH))
            moves[:, :, :trials] = self._moves.draw(first, count)
        masks = self._draw_masks(first, count, drawn)
        return Draws(*drawn, *masks, exchanges, byzantine, durations, moves, inputs, residuals, watched_from)

    def _draw_masks(self, first: int, count: int, drawn: Participants) -> tuple[IndexArray, IndexArray]:
        if self._masks is None:  # everything is sent
            return _NO_ENTRIES, _NO_ENTRIES
        if self._setup.scenario.selection.coordinated:
            # What is uploaded is what all download next.
            entries = self._masks.draw(first, count + 1, drawn.participants)
            return entries[:-1], entries[1:]
        return (
            self._masks.draw(first, count, drawn.participants),
            self._masks.draw(first + 1, count, drawn.uploaders),
        )

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
