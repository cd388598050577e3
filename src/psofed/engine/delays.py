"""Delays: uploads that are on their way, and when they arrive."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Body, Frame, make_function
from psofed.engine.normals import uniform_at
from psofed.engine.signatures import Uploads
from psofed.engine.streams import Stream, WordArray
from psofed.parts.contexts import Departure
from psofed.parts.network import Delay
from psofed.parts.part import takes_memory
from psofed.parts.plain import LARGEST, check_size

# Largest number of values on their way in a trial.
MOST_PENDING = 2_000_000


class DelaySide(NamedTuple):
    """Uploads on their way, and those that have arrived.

    An upload made in iteration n by participant p has number (n mod (R + 1)) · P + p, with R the longest delay. Those
    that arrive in the same iteration form a chain: `head` has the first, `following` the next one.

    Attributes
    ----------
    is_on : bool
        Whether there is a delay; the arrays are empty otherwise.
    weight : float
        α.
    by_delay : bool
        Whether uploads of equal delay are averaged separately.
    durations : int array (T, L, P)
        Delays of the uploads of T iterations; negative if they are lost.
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
    weight: float
    by_delay: bool
    durations: IntArray
    clients: IndexArray
    ages: IntArray
    following: IntArray
    entries: IndexArray
    sent: FloatArray
    head: IntArray
    arrived_ages: IntArray
    tally: IntArray


class Delays:
    """Delays of several trials, their uploads on the way, and scratch for those that `arrived` in an iteration."""

    def __init__(
        self,
        delay: Delay | None,
        stream: Stream,
        num_clients: int,
        participants: int,
        shared: int,
        dimension: int,
    ) -> None:
        self._stream, trials = np.array(stream), stream.key.size
        self._draw: Callable[..., None] | None = None
        ring = most = size = 0
        if delay is not None:
            size = delay.memory_size(dimension)
            check_size(f'delay.kind = "{delay.kind}"', num_clients * size)
            self._draw = make_function(delay, "duration", _make_frame)
            ring, most = delay.longest_delay() + 1, participants * delay.most_at_once()
        if delay is not None and ring * participants * shared > MOST_PENDING:
            raise NotCoveredError(
                f'delay.kind = "{delay.kind}": up to {ring * participants * shared:,} values are on their way at a '
                f"time; the limit is {MOST_PENDING:,}"
            )
        self._longest, pending = ring - 1, ring * participants
        self._memory = np.zeros((trials, num_clients, size))
        self.side: DelaySide = DelaySide(
            is_on=delay is not None,
            weight=1.0 if delay is None else delay.weight,
            by_delay=delay is not None and delay.grouping == "by-delay",
            durations=np.zeros((0, trials, participants), np.int64),
            clients=np.zeros((trials, pending), np.int32),
            ages=np.zeros((trials, pending), np.int64),
            following=np.full((trials, pending), -1),
            entries=np.zeros((trials, pending, shared), np.int32),
            sent=np.zeros((trials, pending, shared)),
            head=np.full((trials, ring), -1),
            arrived_ages=np.zeros((trials, most), np.int64),
            tally=np.zeros(ring, np.int64),
        )
        self.arrived: Uploads = Uploads(
            np.zeros((trials, most), np.int32),
            np.zeros((trials, most, shared), np.int32),
            np.full((trials, most, shared), np.nan),
            np.zeros(trials, np.int64),
            np.zeros(trials, np.int64),
        )

    def draw(self, first: int, uploaders: IndexArray, asked: IntArray) -> DelaySide:
        """Return the state with the delays of the uploads that are made from iteration `first` on.

        ``asked`` (T, L) says how many of the ``uploaders`` (T, L, P) are asked; later places are lost.
        """
        if self._draw is None:
            return self.side
        durations = np.empty(uploaders.shape, np.int64)
        self._draw(first, self._stream, uploaders, asked, self._memory, durations)
        np.minimum(durations, self._longest, out=durations)
        return self.side._replace(durations=durations)


@kernel_part
def pass_time(
    side: DelaySide, t: int, n: int, server: FloatArray, uploads: Uploads, arrived: Uploads
) -> None:
    """Send the uploads of iteration n on their way; write those that arrive, weighted by their delay."""
    ring = side.head.shape[1]
    trials, pending, shared = side.sent.shape
    participants, slot, one_mask = pending // ring, n % ring, uploads.entries.shape[1] == 1
    for trial in range(trials):
        for p in range(uploads.rows[trial]):
            is_sent = False
            for m in range(shared):
                is_sent = is_sent or abs(uploads.sent[trial, p, m]) <= LARGEST
            delay = side.durations[t, trial, p]
            if not is_sent or delay < 0:
                continue
            number, due = slot * participants + p, (n + delay) % ring
            side.clients[trial, number], side.ages[trial, number] = uploads.clients[trial, p], delay
            for m in range(shared):
                side.entries[trial, number, m] = uploads.entries[trial, 0 if one_mask else p, m]
                side.sent[trial, number, m] = uploads.sent[trial, p, m]
            side.following[trial, number] = side.head[trial, due]
            side.head[trial, due] = number
        count, number = 0, side.head[trial, slot]
        while number >= 0:
            count += 1
            number = side.following[trial, number]
        arrived.rows[trial] = arrived.asked[trial] = count
        # The newest is first in its chain; a defence sees the oldest first.
        number = side.head[trial, slot]
        side.head[trial, slot] = -1
        while number >= 0:
            count -= 1
            age = side.ages[trial, number]
            factor = side.weight**age
            arrived.clients[trial, count], side.arrived_ages[trial, count] = side.clients[trial, number], age
            for m in range(shared):
                i, value = side.entries[trial, number, m], side.sent[trial, number, m]
                if factor != 1.0:
                    value = server[trial, i] + factor * (value - server[trial, i])
                arrived.entries[trial, count, m], arrived.sent[trial, count, m] = i, value
            number = side.following[trial, number]


@kernel_part
def weigh_by_delay(side: DelaySide, server: FloatArray, uploads: Uploads) -> None:
    """Scale updates by |A_n| / |A_{n,l}|, so that the mean over all arrivals is the sum of the means by delay."""
    trials, _, shared = uploads.sent.shape
    for trial in range(trials):
        count = uploads.rows[trial]
        for p in range(count):
            side.tally[side.arrived_ages[trial, p]] += 1
        for p in range(count):
            factor = count / side.tally[side.arrived_ages[trial, p]]
            for m in range(shared):
                own = server[trial, uploads.entries[trial, p if uploads.entries.shape[1] > 1 else 0, m]]
                uploads.sent[trial, p, m] = own + factor * (uploads.sent[trial, p, m] - own)
        for p in range(count):
            side.tally[side.arrived_ages[trial, p]] = 0


def _make_frame(unpack: Body, body: Body) -> Frame:
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, first: int, stream: WordArray, clients: IndexArray, asked: IntArray, memory: FloatArray,
        out: IntArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
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
