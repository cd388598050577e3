"""Which clients are available, and which of them take part."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import compiled
from psofed.engine.hooks import Body, options_of, run_method
from psofed.engine.lanes import WIDTH, empty_lanes
from psofed.engine.normals import uniform_at
from psofed.engine.participants import NO_PRESENCE, draw_choice, fill_places
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import Stage
from psofed.parts.contexts import Presence
from psofed.parts.network import Availability
from psofed.parts.part import takes_memory
from psofed.parts.plain import check_size

if TYPE_CHECKING:
    from psofed.engine.state import Layout, Setup

NO_LEARNERS = np.zeros((0, 0, 0), np.uint8)


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


class Presences(NamedTuple):
    """Who is available in T iterations.

    Attributes
    ----------
    options, stream : arrays
        Of the availability.
    shares, client_uniforms : arrays (K,), (L, K)
        Share of the time that each client is available, and a uniform number that it keeps.
    memory : array (L, K, any)
        What the availability remembers of each client.
    shift, mask : int
        Where columns stand.
    present : bool array (T + 1, V, 16)
        Who is available: in the iteration before, and in those that are drawn.
    """

    options: FloatArray
    stream: WordArray
    shares: FloatArray
    client_uniforms: FloatArray
    memory: FloatArray
    shift: int
    mask: int
    present: BoolArray


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
        layout: "Layout",
        memory_size: int = 0,
    ) -> None:
        check_size(f'availability.kind = "{availability.kind}"', shares.size * memory_size)
        words = stream.words(0, shares.size).T
        uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
        self._availability = availability
        self._drawn = Presences(
            options_of(availability), np.array(stream), shares, np.ascontiguousarray(uniforms),
            np.zeros((stream.key.size, shares.size, memory_size)), layout.shift, layout.mask,
            np.zeros((1, layout.vectors, WIDTH), np.bool_),
        )  # fmt: skip

    def draw(self, first: int, count: int) -> BoolArray:
        """Return who is available in the next `count` iterations, the first of them `first`; shape (T, V, 16)."""
        before = self._drawn.present[-1]
        present = empty_lanes(count + 1, *before.shape, dtype=np.bool_)
        present[:] = False
        present[0] = before
        self._drawn = self._drawn._replace(present=present)
        run_method(self._availability, "is_available", _make_frame, self._drawn, first)
        drawn: BoolArray = present[1:]
        return drawn


class Drawing:
    """Draws the participants of several trials.

    Attributes
    ----------
    upload_counts : int array (K, L)
        How often each client has uploaded; empty unless a channel is private.
    """

    def __init__(self, setup: "Setup") -> None:
        scenario, self._layout, self._most = setup.scenario, setup.layout, setup.participants
        availability, links = scenario.availability, scenario.channel
        self._participation = np.array(setup.stream("participation"))
        self._uplink = np.array(setup.stream("uplink")) if scenario.uplink == "redrawn" else None
        self._available: AvailableClients | None = None
        self._server_knows = availability is not None and availability.server_knows
        self._all_learn = availability is None or availability.learns != "available"
        if availability is not None:
            shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
            size = availability.memory_size(scenario.dimension)
            stream = setup.stream("availability")
            self._available = AvailableClients(availability, shares, stream, setup.layout, size)
        counts = links is not None and any(channel.kind == "private" for channel in links.up)
        self.upload_counts: IntArray = np.zeros(
            (scenario.num_clients if counts else 0, len(setup.trials)), np.int64
        )

    def draw(self, first: int, count: int, exchanges: IntArray) -> Participants:
        """Draw `count` iterations from number `first` on; ``exchanges`` (T,) of those drawn take part in each."""
        present = NO_PRESENCE if self._available is None else self._available.draw(first, count)
        sampling = (first, count, present, self._server_knows, self._layout, self._most)
        down = up = draw_choice(self._participation, *sampling)
        if self._uplink is not None:
            up = draw_choice(self._uplink, *sampling)
        downloads, uploads, asked = down.reached, up.reached, up.asked
        if (exchanges < self._most).any():
            if self._server_knows:
                clients, shift, mask = self._layout
                fill_places(present, shift, mask, clients, asked, down.participants)
            is_asked = np.arange(self._most) < exchanges[:, None, None]
            downloads = uploads = np.broadcast_to(is_asked, down.participants.shape) & (
                downloads if downloads.size else True
            )
            asked = np.minimum(asked, exchanges[:, None])
        if self.upload_counts.size:
            _count_uploads(up.participants, uploads, self.upload_counts)
        learns = NO_LEARNERS if self._all_learn else present.view(np.uint8)
        return Participants(down.participants, up.participants, downloads, uploads, asked, learns)


@compiled
def _count_uploads(uploaders: IndexArray, uploads: BoolArray, out: IntArray) -> None:
    """Count how often each client uploads; an empty array of uploads stands for all."""
    for t in range(uploaders.shape[0]):
        for trial in range(uploaders.shape[1]):
            for p in range(uploaders.shape[2]):
                out[uploaders[t, trial, p], trial] += uploads.size == 0 or uploads[t, trial, p]


def _make_frame(unpack: Body, body: Body) -> Stage:
    has_memory = takes_memory(body)

    def frame(first: int, k: int, g: int, table: Presences) -> None:
        self, stream, shares, own = unpack(table.options), table.stream, table.shares, table.client_uniforms
        memory, shift, mask, out = table.memory, table.shift, table.mask, table.present
        trials, num_clients = own.shape
        for t in range(1, out.shape[0]):
            n = first + t - 1
            for client in range(num_clients):
                v = client >> shift
                for trial in range(trials):
                    lane = trial + (client & mask)
                    # The first K words are drawn once per client.
                    uniform = uniform_at(stream, trial, (n + 1) * num_clients + client)
                    presence = Presence(
                        n,
                        client,
                        num_clients,
                        shares[client],
                        uniform,
                        own[trial, client],
                        out[t - 1, v, lane],
                    )
                    if has_memory:
                        out[t, v, lane] = bool(body(self, presence, memory[trial, client]))
                    else:
                        out[t, v, lane] = bool(body(self, presence))

    return frame
