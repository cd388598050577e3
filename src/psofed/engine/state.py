"""State of a block of trials, its uploads, and what every step of the iteration is made from.

L is the number of trials in a block, K of clients, D of entries, P of uploads, M of numbers in each. Kernels hold
errors, w − model; a model's entry i is ``target[i]`` less that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Hooks
from psofed.engine.lanes import WIDTH, empty_lanes, filled
from psofed.engine.streams import Stream, make_stream
from psofed.engine.tables import TableData
from psofed.engine.vocabulary import sort
from psofed.parts.contexts import scratch_size
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import part_of

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


# What attackers know (`Attack.knows`) who see what others upload.
SEES_OTHERS = ("accomplices", "everyone")


class Layout(NamedTuple):
    """Where columns stand: client k of trial l is lane ``l + (k & mask)`` of vector ``k >> shift``."""

    clients: int
    shift: int
    mask: int

    @property
    def vectors(self) -> int:
        """Number of vectors that the clients of a block take."""
        return ((self.clients - 1) >> self.shift) + 1


@register_jitable
def column(layout: Layout, client: Any, trial: int) -> tuple[int, int]:
    """Return the vector and the lane of a client in a trial."""
    return client >> layout.shift, trial + (client & layout.mask)


def make_layout(clients: int, over_clients: bool) -> Layout:
    """Return the layout with clients as lanes, or with trials as lanes."""
    return Layout(clients, 4, WIDTH - 1) if over_clients else Layout(clients, 0, 0)


class Uploads(TableData):
    """Up to `most` messages of an iteration with `numbers` numbers each.

    Attributes
    ----------
    clients : int array (L, P)
        Which client each upload is from, or each download for.
    entries : int array (L, P or 1, M)
        Which entry each number belongs to, the first ones until they are written; one row where all clients exchange
        the same entries.
    sent : array (L, P, M)
        The numbers, as errors; NaN for one that is not sent. Attacks, channels and defences change them in place.
    rows : int array (L,)
        How many of the P uploads there are.
    asked : int array (L,)
        How many clients were asked to upload: what the mean divides by.
    """

    def __init__(self, trials: int, most: int, numbers: int, one_mask: bool = True) -> None:
        entries = np.arange(numbers, dtype=np.int32)
        self.clients: IndexArray = np.repeat(np.arange(most, dtype=np.int32)[None], trials, axis=0)
        self.entries: IndexArray = np.broadcast_to(entries, (trials, 1 if one_mask else most, numbers)).copy()
        self.sent: FloatArray = np.full((trials, most, numbers), np.nan)
        self.rows: IntArray = np.full(trials, most)
        self.asked: IntArray = np.full(trials, most)


class Work(TableData):
    """Scratch of those who see up to `participants` uploads of `shared` numbers as vectors.

    Attributes
    ----------
    numbers, flags : array (any,)
        Numbers by upload or entry, and which of them were sent.
    row_of, entry_of : int array (D,), (any,)
        Where each entry stands among those shared, −1 between calls, and back.
    counts : int array (D,)
        How many numbers there are of each entry: 0 between calls.
    order : int array (P,)
        Uploads, or whose they are.
    """

    def __init__(self, participants: int, shared: int, dimension: int, over_vectors: bool = True) -> None:
        most, numbers = min(dimension, participants * shared), dimension * participants
        if over_vectors:
            numbers += participants * participants + 4 * (most + participants) + scratch_size(participants, most)
        self.numbers = np.empty(numbers)
        self.flags = np.empty(participants * most if over_vectors else 0, np.bool_)
        self.row_of = np.full(dimension, -1)
        self.entry_of = np.empty(most, np.int64)
        self.counts = np.zeros(dimension, np.int64)
        self.order = np.empty(participants, np.int64)


class State(TableData):
    """Models of a block of trials before its first iteration, all zero, as errors; and scratch.

    Attributes
    ----------
    target, base : array (D,)
        w, and what uploads are counted from: w, or zeros where no models are sent.
    models : array (V, D, 16)
        Errors w − w_{k,n} of all columns.
    server, known : arrays (L, D)
        Errors w − w_n, and what those who see uploads take for them: zeros (L, M) where no models are sent.
    server_lanes : array (1, D, 16)
        Scratch: the server's errors with trials as lanes.
    path, measured : arrays (L, D, 16) and (2, 16)
        Scratch: the server's errors of sixteen iterations, and their metrics.
    learns : uint8 array (V, 16)
        1 for each column that learns in the current iteration.
    """

    def __init__(self, setup: "Setup") -> None:
        target, trials, vectors = setup.fleet.target, len(setup.trials), setup.layout.vectors
        self.target = target.copy()
        self.base = target.copy() if setup.sends_models else np.zeros(setup.numbers)
        holds_models = setup.scenario.algorithm.holds_models
        self.models: FloatArray = filled(target[:, None], vectors if holds_models else 1, target.size, WIDTH)
        self.server = np.repeat(target[None], trials, axis=0)
        self.known = self.server if setup.sends_models else np.zeros((trials, setup.numbers))
        self.server_lanes: FloatArray = filled(0.0, 1, target.size, WIDTH)
        self.path: FloatArray = filled(0.0, trials, target.size, WIDTH)
        self.measured: FloatArray = empty_lanes(2, WIDTH)
        self.learns: NDArray[np.uint8] = np.ones((vectors, WIDTH), np.uint8)


@dataclass(eq=False)
class Setup:
    """A block of trials before its first iteration: what the steps of the iteration are made from.

    Attributes
    ----------
    scenario, fleet, seed, trials
        What is simulated.
    layout : Layout
        Where columns stand.
    has_samples : bool
        Whether samples are given, else drawn.
    hooks : Hooks
        Where the parts' methods are collected.
    exchange : Exchange or None
        What is exchanged, where clients hold no model.
    participants : int
        Largest number of participants in an iteration.
    numbers, most_numbers : int
        Numbers in an upload, as it is sent, and at most, also after it is decoded.
    entries : int
        Entries of what uploads are part of: D, or all numbers in an upload.
    sends_models : bool
        Whether uploads are models, and not updates of any kind.
    one_mask : bool
        Whether all clients exchange the same entries in an iteration.
    state : State
        The state before the first iteration.
    uploads : Uploads
        Uploads of an iteration; with delays also those that arrive in it.
    work : Work
        Scratch of those who see uploads as vectors.
    """

    scenario: "Scenario"
    fleet: "Fleet"
    seed: int
    trials: range
    layout: Layout
    has_samples: bool
    hooks: Hooks

    def __post_init__(self) -> None:
        scenario, algorithm, delay = self.scenario, self.scenario.algorithm, self.scenario.delay
        shared, dimension = scenario.num_shared, scenario.dimension
        self.exchange = None if algorithm.holds_models else algorithm.exchange(scenario)
        self.participants: int = algorithm.most_participants(scenario)
        self.numbers: int = shared if self.exchange is None else self.exchange.numbers
        self.most_numbers: int = shared if self.exchange is None else max(self.numbers, dimension)
        self.entries: int = dimension if self.exchange is None else self.numbers
        self.sends_models: bool = self.exchange is None or self.exchange.sends_model
        self.one_mask = self.exchange is not None or scenario.selection.coordinated or shared == dimension
        self.state = State(self)
        arrivals = self.participants * (1 if delay is None else max(1, delay.most_at_once()))
        self.uploads = Uploads(len(self.trials), arrivals, self.numbers, self.one_mask and delay is None)
        over_vectors = (
            scenario.pre_aggregation is not None
            or scenario.aggregation.over == "vectors"
            or scenario.defence is not None
            or any(attack.defines("craft") or attack.knows in SEES_OTHERS for attack in scenario.attacks)
        )
        joined = max(scenario.most_uploads, self.participants)
        self.work = Work(joined, self.most_numbers, max(self.most_numbers, dimension), over_vectors)

    def stream(self, source: str, index: int = 0) -> Stream:
        """Return the stream of one source of randomness."""
        return make_stream(self.seed, source, self.trials, index)


@kernel_part
def copy_array(source: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy an array of the same shape; assigning it takes Numba seconds to compile."""
    numbers, copies = part_of(source, 0, (source.size,)), part_of(out, 0, (out.size,))
    for i in range(numbers.size):
        copies[i] = numbers[i]


@register_jitable
def entry_at(uploads: Uploads, trial: int, p: int, m: int) -> int:
    """Return the entry of an upload's m-th number."""
    entry: int = uploads.entries[trial, p if uploads.entries.shape[1] > 1 else 0, m]
    return entry


@register_jitable
def has_arrived(numbers: FloatArray) -> bool:
    """Tell whether any number of an upload is sent, and not too large."""
    arrived = False
    for number in numbers:
        arrived = arrived or abs(number) <= LARGEST
    return arrived


@register_jitable
def gather(
    uploads: Uploads, trial: int, order: IntArray, count: int, base: FloatArray, work: Work
) -> tuple[FloatArray, BoolArray, IntArray]:
    """Return ``base`` (D,) less what the first `count` uploads in ``order`` hold, who shares what, and the entries.

    The first two have the shape (count, E), with 0 and False where an entry is not shared; entries ascend. Until
    :func:`release`, ``work.row_of`` has the place of each entry.
    """
    entries, sent, row_of, entry_of, met = uploads.entries, uploads.sent, work.row_of, work.entry_of, 0
    one_mask = entries.shape[1] == 1
    for q in range(count):
        p = order[q]
        for m in range(sent.shape[2]):
            i = entries[trial, 0 if one_mask else p, m]
            if abs(sent[trial, p, m]) <= LARGEST and row_of[i] < 0:
                row_of[i] = 0
                entry_of[met] = i
                met += 1
    shared_entries = part_of(entry_of, 0, (met,))
    sort(shared_entries)
    for row in range(met):
        row_of[shared_entries[row]] = row
    values, flags = part_of(work.numbers, 0, (count, met)), part_of(work.flags, 0, (count, met))
    for q in range(count):
        p = order[q]
        for row in range(met):
            values[q, row], flags[q, row] = 0.0, False
        for m in range(sent.shape[2]):
            i, number = entries[trial, 0 if one_mask else p, m], sent[trial, p, m]
            if abs(number) <= LARGEST:
                values[q, row_of[i]], flags[q, row_of[i]] = base[i] - number, True
    return values, flags, shared_entries


@register_jitable
def release(entries: IntArray, work: Work) -> None:
    """Forget the places of entries."""
    for i in entries:
        work.row_of[i] = -1
