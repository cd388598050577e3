"""Which clients are available, and which of them take part."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import compiled
from psofed.engine.hooks import Body, Frame, make_function
from psofed.engine.lanes import WIDTH, empty_lanes
from psofed.engine.normals import uniform_at
from psofed.engine.participants import NO_PRESENCE, fill_participants, fill_places, find_reached
from psofed.engine.step import Layout
from psofed.engine.streams import Stream, WordArray, make_stream
from psofed.parts.contexts import Presence
from psofed.parts.network import Availability
from psofed.parts.part import takes_memory
from psofed.parts.plain import check_size

if TYPE_CHECKING:
    from psofed.scenario import Scenario

_NO_LEARNERS = np.zeros((0, 0, 0), np.uint8)


class Participants(NamedTuple):
    """Who takes part in T iterations.

    Attributes
    ----------
    participants, uploaders : int array (T, L, P)
        Clients that download and that upload, if they are reached.
    downloads, uploads : bool array (T, L, P), or empty
        Whether each participant downloads, and whether each uploader uploads; all do if it is empty.
    asked : int array (T, L)
        Number of clients that were asked to upload.
    learns : uint8 array (T, V, 16), or empty
        1 for each column that learns; all do if it is empty.
    """

    participants: IndexArray
    uploaders: IndexArray
    downloads: BoolArray
    uploads: BoolArray
    asked: IntArray
    learns: NDArray[np.uint8]


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
        self,
        availability: Availability,
        shares: FloatArray,
        stream: Stream,
        layout: Layout,
        memory_size: int = 0,
    ) -> None:
        check_size(f'availability.kind = "{availability.kind}"', shares.size * memory_size)
        self._stream, self._shares, self._layout = np.array(stream), shares, layout
        words = stream.words(0, shares.size).T
        uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
        self._client_uniforms = np.ascontiguousarray(uniforms)
        vectors = ((shares.size - 1) >> layout.shift) + 1
        self._before = np.zeros((vectors, WIDTH), np.bool_)
        self._memory = np.zeros((stream.key.size, shares.size, memory_size))
        self._fill = make_function(availability, "is_available", _make_frame)

    def draw(self, first: int, count: int) -> BoolArray:
        """Return who is available in the next `count` iterations, the first of them `first`; shape (T, V, 16)."""
        out = empty_lanes(count + 1, *self._before.shape, dtype=np.bool_)
        out[:] = False
        out[0] = self._before
        shift, mask = self._layout.shift, self._layout.mask
        self._fill(first, self._stream, self._shares, self._client_uniforms, self._memory, shift, mask, out)
        self._before = out[-1].copy()
        drawn: BoolArray = out[1:]
        return drawn


def _make_frame(unpack: Body, body: Body) -> Frame:
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, first: int, stream: WordArray, shares: FloatArray, client_uniforms: FloatArray,
        memory: FloatArray, shift: int, mask: int, out: BoolArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        trials, num_clients = client_uniforms.shape
        for t in range(1, out.shape[0]):
            n = first + t - 1
            for k in range(num_clients):
                v = k >> shift
                for trial in range(trials):
                    lane = trial + (k & mask)
                    # The first K words are drawn once per client.
                    uniform = uniform_at(stream, trial, (n + 1) * num_clients + k)
                    presence = Presence(
                        n, k, num_clients, shares[k], uniform, client_uniforms[trial, k], out[t - 1, v, lane]
                    )
                    if has_memory:
                        out[t, v, lane] = bool(body(self, presence, memory[trial, k]))
                    else:
                        out[t, v, lane] = bool(body(self, presence))

    return frame


class Drawing:
    """Draws the participants of several trials; at most `most` in an iteration.

    Attributes
    ----------
    upload_counts : int array (K, L)
        How often each client has uploaded; empty unless a channel is private.
    """

    def __init__(self, scenario: "Scenario", seed: int, trials: range, layout: Layout, most: int) -> None:
        self._scenario, self._layout, self._most = scenario, layout, most
        self._participation = np.array(make_stream(seed, "participation", trials))
        self._uplink = np.array(make_stream(seed, "uplink", trials)) if scenario.uplink == "redrawn" else None
        availability, links = scenario.availability, scenario.channel
        self._available: AvailableClients | None = None
        if availability is not None:
            shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
            stream = make_stream(seed, "availability", trials)
            size = availability.memory_size(scenario.dimension)
            self._available = AvailableClients(availability, shares, stream, layout, size)
        counts = links is not None and any(channel.kind == "private" for channel in links.up)
        self.upload_counts: IntArray = np.zeros(
            (scenario.num_clients if counts else 0, len(trials)), np.int64
        )

    def draw(self, first: int, count: int, exchanges: IntArray) -> Participants:
        """Draw `count` iterations from number `first` on; ``exchanges`` (T,) of those drawn take part in each."""
        availability, layout = self._scenario.availability, self._layout
        present = NO_PRESENCE if self._available is None else self._available.draw(first, count)
        participants, downloads, asked = self._draw(self._participation, first, count, present)
        uploaders, uploads = participants, downloads
        if self._uplink is not None:
            uploaders, uploads, asked = self._draw(self._uplink, first, count, present)
        if (exchanges < self._most).any():
            if availability is not None and availability.server_knows:
                clients = self._scenario.num_clients
                fill_places(present, layout.shift, layout.mask, clients, asked, participants)
            is_asked = np.arange(self._most) < exchanges[:, None, None]
            downloads = uploads = (
                downloads & is_asked
                if downloads.size
                else np.broadcast_to(is_asked, participants.shape).copy()
            )
            asked = np.minimum(asked, exchanges[:, None])
        if self.upload_counts.size:
            _count_uploads(uploaders, uploads, self.upload_counts)
        learns = _NO_LEARNERS
        if availability is not None and availability.learns == "available":
            learns = present.view(np.uint8)
        return Participants(participants, uploaders, downloads, uploads, asked, learns)

    def _draw(
        self, stream: WordArray, first: int, count: int, present: BoolArray
    ) -> tuple[IndexArray, BoolArray, IntArray]:
        """Return participants, whether each is reached, and how many were asked."""
        scenario, (shift, mask) = self._scenario, self._layout[1:]
        out = np.empty((count, stream.shape[1], self._most), np.int32)
        asked = np.full(out.shape[:2], self._most)
        reached = np.empty(out.shape if present.size else (0, 0, 0), np.bool_)
        knows = scenario.availability is not None and scenario.availability.server_knows
        fill_participants(
            first, stream, present if knows else NO_PRESENCE, shift, mask,
            np.arange(scenario.num_clients, dtype=np.int32), np.empty(self._most, np.int64), asked, reached, out,
        )  # fmt: skip
        if present.size and not knows:
            find_reached(present, shift, mask, out, reached)
        return out, reached, asked


@compiled
def _count_uploads(uploaders: IndexArray, uploads: BoolArray, out: IntArray) -> None:
    """Count how often each client uploads; an empty array of uploads stands for all."""
    for t in range(uploaders.shape[0]):
        for trial in range(uploaders.shape[1]):
            for p in range(uploaders.shape[2]):
                out[uploaders[t, trial, p], trial] += uploads.size == 0 or uploads[t, trial, p]
