"""The frame of delays, and the uploads that are on their way."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.bodies import Body, Frame, Unpack, make_function
from psofed.engine.compiling import compiled, kernel_part, returns_slice
from psofed.engine.hooks import DELAY, Uploads, take_delay
from psofed.engine.normals import unit_uniform_at
from psofed.engine.streams import Stream
from psofed.parts.contexts import Departure
from psofed.parts.network import Delay
from psofed.parts.part import takes_memory
from psofed.parts.plain import LARGEST, check_size

# Largest number of values on their way in a trial.
MOST_PENDING = 2_000_000


class DelaySide(NamedTuple):
    """Uploads on their way, and those that have arrived.

    An upload made in iteration n by participant p has number (n mod (L + 1)) · P + p, with L the longest delay. Those
    that arrive in the same iteration form a chain: `head` has the first, `following` the next one.

    Attributes
    ----------
    is_on : bool
        Whether there is a delay; the arrays are empty otherwise.
    weight : float
        α.
    by_delay : bool
        Whether uploads of equal delay are averaged separately.
    durations : int array (T, P, lanes)
        Delays of the uploads of T iterations; negative if they are lost.
    clients, entries, sent : arrays (L + 1, P, lanes) and (L + 1, P, M, lanes)
        The uploads on their way.
    ages : int array ((L + 1) · P, lanes)
        Their delays.
    head, following : int arrays (L + 1, lanes) and ((L + 1) · P, lanes)
        Chains of uploads that arrive together; −1 at their end.
    arrived : Uploads
        Those that arrive in an iteration.
    arrived_ages : int array (any, lanes)
        Their delays.
    tally : int array (L + 1,)
        Scratch: number of arrivals by delay, 0 between calls.
    """

    is_on: bool
    weight: float
    by_delay: bool
    durations: IntArray
    clients: IndexArray
    entries: IndexArray
    sent: FloatArray
    ages: IntArray
    head: IntArray
    following: IntArray
    arrived: Uploads
    arrived_ages: IntArray
    tally: IntArray


class Delays:
    """Delays of several trials, and their uploads on the way."""

    def __init__(
        self,
        delay: Delay | None,
        stream: Stream,
        num_clients: int,
        participants: int,
        shared: int,
        dimension: int,
    ) -> None:
        self._stream, lanes = stream, stream.key.size
        self._draw: Callable[..., None] | None = None
        ring = most = size = 0
        if delay is not None:
            size = delay.memory_size(dimension)
            check_size(f'delay.kind = "{delay.kind}"', num_clients * size)
            self._draw = make_function(delay, "duration", DELAY, _make_frame, _call)
            ring, most = delay.longest_delay() + 1, participants * delay.most_at_once()
        if delay is not None and ring * participants * shared > MOST_PENDING:
            raise NotCoveredError(
                f'delay.kind = "{delay.kind}": up to {ring * participants * shared:,} values are on their way at a '
                f"time; the limit is {MOST_PENDING:,}"
            )
        self._longest = ring - 1
        self._memory = np.zeros((lanes, num_clients, size))
        self._side = DelaySide(
            is_on=delay is not None,
            weight=1.0 if delay is None else delay.weight,
            by_delay=delay is not None and delay.grouping == "by-delay",
            durations=np.zeros((0, participants, lanes), np.int64),
            clients=np.zeros((ring, participants, lanes), np.int32),
            entries=np.zeros((ring, participants, shared, lanes), np.int32),
            sent=np.zeros((ring, participants, shared, lanes)),
            ages=np.zeros((ring * participants, lanes), np.int64),
            head=np.full((ring, lanes), -1),
            following=np.full((ring * participants, lanes), -1),
            arrived=Uploads(
                np.zeros((most, lanes), np.int32),
                np.zeros((most, shared, lanes), np.int32),
                np.full((most, shared, lanes), np.nan),
                np.zeros(lanes, np.int64),
            ),
            arrived_ages=np.zeros((most, lanes), np.int64),
            tally=np.zeros(ring, np.int64),
        )

    def draw(self, first: int, uploaders: IndexArray, asked: IntArray) -> DelaySide:
        """Return the state with the delays of the uploads that are made from iteration `first` on.

        ``asked`` (T, lanes) says how many of the ``uploaders`` (T, P, lanes) are asked; later places are lost.
        """
        if self._draw is None:
            return self._side
        durations = np.empty(uploaders.shape, np.int64)
        self._draw(first, self._stream, uploaders, asked, self._memory, durations)
        np.minimum(durations, self._longest, out=durations)
        return self._side._replace(durations=durations)


@kernel_part
def pass_time(side: DelaySide, t: int, n: int, server: FloatArray, uploads: Uploads) -> int:
    """Send the uploads of iteration n on their way; write those that arrive, weighted by their delay, and count them.

    The caller takes that many of ``side.arrived``: arrays must not leave a kernel that counts no references.
    """
    ring, participants, shared, lanes = side.sent.shape
    slot, arrived = n % ring, side.arrived
    for p in range(uploads.sent.shape[0]):
        for lane in range(lanes):
            is_sent = False
            for m in range(shared):
                is_sent = is_sent or abs(uploads.sent[p, m, lane]) <= LARGEST
            delay = side.durations[t, p, lane]
            if not is_sent or delay < 0:
                continue
            number = slot * participants + p
            side.clients[slot, p, lane] = uploads.clients[p, lane]
            side.ages[number, lane] = delay
            for m in range(shared):
                side.entries[slot, p, m, lane] = uploads.entries[p, m, lane]
                side.sent[slot, p, m, lane] = uploads.sent[p, m, lane]
            due = (n + delay) % ring
            side.following[number, lane] = side.head[due, lane]
            side.head[due, lane] = number
    most = 0
    for lane in range(lanes):
        count, number = 0, side.head[slot, lane]
        while number >= 0:
            count += 1
            number = side.following[number, lane]
        arrived.counts[lane] = count
        most = max(most, count)
        # The newest is first in its chain; a defence sees the oldest first.
        number = side.head[slot, lane]
        side.head[slot, lane] = -1
        while number >= 0:
            count -= 1
            made, p = number // participants, number % participants
            age = side.ages[number, lane]
            factor = side.weight**age
            arrived.clients[count, lane] = side.clients[made, p, lane]
            side.arrived_ages[count, lane] = age
            for m in range(shared):
                i, value = side.entries[made, p, m, lane], side.sent[made, p, m, lane]
                if factor != 1.0:
                    value = server[i, lane] + factor * (value - server[i, lane])
                arrived.entries[count, m, lane] = i
                arrived.sent[count, m, lane] = value
            number = side.following[number, lane]
    for lane in range(lanes):
        for p in range(arrived.counts[lane], most):
            arrived.clients[p, lane] = 0
            for m in range(shared):
                arrived.entries[p, m, lane] = 0
                arrived.sent[p, m, lane] = math.nan
    return most


@returns_slice
def first_arrivals(side: DelaySide, count: int) -> Uploads:
    """Return the first `count` of the uploads that have arrived."""
    arrived = side.arrived
    return Uploads(arrived.clients[:count], arrived.entries[:count], arrived.sent[:count], arrived.counts)


@kernel_part
def weigh_by_delay(side: DelaySide, server: FloatArray, uploads: Uploads) -> None:
    """Scale updates by |A_n| / |A_{n,l}|, so that the mean over all arrivals is the sum of the means by delay."""
    _, shared, lanes = uploads.sent.shape
    for lane in range(lanes):
        count = uploads.counts[lane]
        for p in range(count):
            side.tally[side.arrived_ages[p, lane]] += 1
        for p in range(count):
            factor = count / side.tally[side.arrived_ages[p, lane]]
            for m in range(shared):
                own = server[uploads.entries[p, m, lane], lane]
                uploads.sent[p, m, lane] = own + factor * (uploads.sent[p, m, lane] - own)
        for p in range(count):
            side.tally[side.arrived_ages[p, lane]] = 0


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    has_memory = takes_memory(body)

    def frame(
        token: int,
        options: FloatArray,
        first: int,
        stream: Stream,
        clients: IndexArray,
        asked: IntArray,
        memory: FloatArray,
        out: IntArray,
    ) -> None:
        self = unpack(options)
        iterations, participants, lanes = out.shape
        num_clients = memory.shape[1]
        for t in range(iterations):
            n = first + t
            for p in range(participants):
                for lane in range(lanes):
                    out[t, p, lane] = -1
                    if p >= asked[t, lane]:
                        continue
                    client: Any = np.int64(clients[t, p, lane])
                    uniform = unit_uniform_at(stream.key[lane], stream.gamma[lane], n * num_clients + client)
                    if has_memory:
                        out[t, p, lane] = body(self, Departure(client, n, uniform), memory[lane, client])
                    else:
                        out[t, p, lane] = body(self, Departure(client, n, uniform))

    return frame


@compiled
def _call(address: int, *arguments: Any) -> None:
    take_delay(address)(0, *arguments)
