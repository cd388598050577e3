"""Delays: uploads that are on their way, and when they arrive."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Body, options_of, run_method
from psofed.engine.normals import uniform_at
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import Stage
from psofed.engine.uploads import Uploads, copy
from psofed.parts.contexts import Departure
from psofed.parts.network import Delay
from psofed.parts.part import takes_memory
from psofed.parts.plain import LARGEST, check_size

if TYPE_CHECKING:
    from psofed.engine.state import Setup

# Largest number of values on their way in a trial.
MOST_PENDING = 2_000_000


class DelaySide(NamedTuple):
    """Uploads on their way, and those that have arrived; empty without a delay.

    An upload made in iteration n by participant p has number (n mod (R + 1)) · P + p, with R the longest delay. Those
    that arrive in the same iteration form a chain: `head` has the first, `following` the next one.

    Attributes
    ----------
    is_on : bool
        Whether there is a delay.
    by_delay : bool
        Whether uploads of equal delay are averaged separately.
    weight : float
        α.
    clients, ages, following : int arrays (L, (R + 1) · P)
        Whose the uploads on their way are, their delays, and the next one of their chain; −1 at its end.
    entries, sent : arrays (L, (R + 1) · P, M)
        Their entries and numbers.
    head : int array (L, R + 1)
        The first of each chain.
    arrived_ages : int array (L, any)
        Delays of the uploads that arrive in an iteration.
    tally : int array (R + 1,)
        Scratch: number of arrivals by delay, 0 between calls.
    """

    is_on: bool
    by_delay: bool
    weight: float
    clients: IndexArray
    ages: IntArray
    following: IntArray
    entries: IndexArray
    sent: FloatArray
    head: IntArray
    arrived_ages: IntArray
    tally: IntArray


class Departures(NamedTuple):
    """Uploads of T iterations that are sent on their way; later places than ``asked`` (T, L) are lost."""

    options: FloatArray
    stream: WordArray
    clients: IndexArray
    asked: IntArray
    memory: FloatArray
    durations: IntArray


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
        durations = np.empty(uploaders.shape, np.int64)
        table = Departures(options_of(self._delay), self._stream, uploaders, asked, self._memory, durations)
        run_method(self._delay, "duration", _make_frame, table, first)
        return np.minimum(durations, self._delay.longest_delay())


def make_delay_side(setup: "Setup") -> DelaySide:
    """Return the uploads on their way at the start: none."""
    delay, trials = setup.scenario.delay, len(setup.trials)
    participants, numbers, ring = setup.participants, setup.numbers, 0
    if delay is not None:
        ring = delay.longest_delay() + 1
        if ring * participants * numbers > MOST_PENDING:
            raise NotCoveredError(
                f'delay.kind = "{delay.kind}": up to {ring * participants * numbers:,} values are on their way at a '
                f"time; the limit is {MOST_PENDING:,}"
            )
    pending = (trials, ring * participants)
    return DelaySide(
        is_on=delay is not None,
        by_delay=delay is not None and delay.grouping == "by-delay",
        weight=1.0 if delay is None else delay.weight,
        clients=np.zeros(pending, np.int32),
        ages=np.zeros(pending, np.int64),
        following=np.full(pending, -1),
        entries=np.zeros((*pending, numbers), np.int32),
        sent=np.zeros((*pending, numbers)),
        head=np.full((trials, ring), -1),
        arrived_ages=np.zeros(setup.uploads.clients.shape, np.int64),
        tally=np.zeros(ring, np.int64),
    )


@kernel_part
def pass_time(n: int, durations: IntArray, side: DelaySide, server: FloatArray, uploads: Uploads) -> None:
    """Send the uploads of iteration n on their way for ``durations`` (L, P); put those that arrive in their place."""
    head, following, ages, weight = side.head, side.following, side.ages, side.weight
    pending_clients, pending_entries, pending_sent = side.clients, side.entries, side.sent
    arrived_ages, clients, entries, sent = side.arrived_ages, uploads.clients, uploads.entries, uploads.sent
    ring, (trials, pending, shared) = head.shape[1], pending_sent.shape
    participants, slot = pending // ring, n % ring
    for trial in range(trials):
        for p in range(uploads.rows[trial]):
            is_sent = False
            for m in range(shared):
                is_sent = is_sent or abs(sent[trial, p, m]) <= LARGEST
            delay = durations[trial, p]
            if not is_sent or delay < 0:
                continue
            number, due = slot * participants + p, (n + delay) % ring
            pending_clients[trial, number], ages[trial, number] = clients[trial, p], delay
            copy(entries[trial, p], pending_entries[trial, number])
            copy(sent[trial, p], pending_sent[trial, number])
            following[trial, number] = head[trial, due]
            head[trial, due] = number
        count, number = 0, head[trial, slot]
        while number >= 0:
            count += 1
            number = following[trial, number]
        uploads.rows[trial] = uploads.asked[trial] = count
        # The newest is first in its chain; a defence sees the oldest first.
        number = head[trial, slot]
        head[trial, slot] = -1
        while number >= 0:
            count -= 1
            age = ages[trial, number]
            factor = weight**age
            clients[trial, count], arrived_ages[trial, count] = pending_clients[trial, number], age
            for m in range(shared):
                i, value = pending_entries[trial, number, m], pending_sent[trial, number, m]
                if factor != 1.0:
                    value = server[trial, i] + factor * (value - server[trial, i])
                entries[trial, count, m], sent[trial, count, m] = i, value
            number = following[trial, number]


@kernel_part
def weigh_by_delay(side: DelaySide, server: FloatArray, uploads: Uploads) -> None:
    """Scale updates by |A_n| / |A_{n,l}|, so that the mean over all arrivals is the sum of the means by delay."""
    tally, ages, entries, sent = side.tally, side.arrived_ages, uploads.entries, uploads.sent
    for trial in range(sent.shape[0]):
        count = uploads.rows[trial]
        for p in range(count):
            tally[ages[trial, p]] += 1
        for p in range(count):
            factor = count / tally[ages[trial, p]]
            for m in range(sent.shape[2]):
                own = server[trial, entries[trial, p, m]]
                sent[trial, p, m] = own + factor * (sent[trial, p, m] - own)
        for p in range(count):
            tally[ages[trial, p]] = 0


def _make_frame(unpack: Body, body: Body) -> Stage:
    has_memory = takes_memory(body)

    def frame(first: int, k: int, g: int, table: Departures) -> None:
        self, stream, clients, asked = unpack(table.options), table.stream, table.clients, table.asked
        memory, out = table.memory, table.durations
        iterations, trials, participants = out.shape
        num_clients = memory.shape[1]
        for t in range(iterations):
            n = first + t
            for trial in range(trials):
                for p in range(participants):
                    out[t, trial, p] = -1
                    if p >= asked[t, trial]:
                        continue
                    client: Any = np.int64(clients[t, trial, p])
                    departure = Departure(client, n, uniform_at(stream, trial, n * num_clients + client))
                    if has_memory:
                        out[t, trial, p] = body(self, departure, memory[trial, client])
                    else:
                        out[t, trial, p] = body(self, departure)

    return frame
