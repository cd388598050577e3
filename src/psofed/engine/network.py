"""The network between clients and server in the form that the kernel takes."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.bodies import Hook, HookHolder
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.frames.availability import AvailableClients
from psofed.engine.frames.channel import ChannelSide, make_channels, transmit
from psofed.engine.frames.delay import Delays, DelaySide
from psofed.engine.hooks import Uploads
from psofed.engine.participation import draw_from_available, draw_participants, fill_places, find_reached
from psofed.engine.streams import Stream, make_stream
from psofed.parts.plain import check_size

if TYPE_CHECKING:
    from psofed.scenario import Scenario

_EVERYBODY = np.zeros((0, 0, 0), np.bool_)
_ALL_LEARN = np.zeros((0, 0, 0), np.uint8)


class NetworkSide(NamedTuple):
    """Who is reached in T iterations, and what the links do; without any of it kernels take None.

    Attributes
    ----------
    downloads, uploads : bool array (T, P, lanes), or empty
        Whether each participant downloads, and whether each uploader uploads; all do if it is empty.
    asked : int array (T, lanes)
        Number of clients that were asked to upload.
    learns : uint8 array (T, K, lanes), or empty
        1 for each client that learns, 0 for the others; all do if it is empty.
    up, down : ChannelSide
        The channels.
    received, held, held_memory : arrays (P, M, lanes), (D, lanes) and (lanes, any)
        Scratch for downloads, and for the model and memory of a client that does not learn.
    delay : DelaySide
        Uploads on their way.
    """

    downloads: BoolArray
    uploads: BoolArray
    asked: IntArray
    learns: NDArray[np.uint8]
    up: ChannelSide
    down: ChannelSide
    received: FloatArray
    held: FloatArray
    held_memory: FloatArray
    delay: DelaySide


class MessageSizes(NamedTuple):
    """Sizes of messages.

    Attributes
    ----------
    participants : int
        Largest number of clients that take part in an iteration.
    up, down : int
        Values in an upload and in a download.
    entries_up : int
        Number of different entries that uploads may hold.
    """

    participants: int
    up: int
    down: int
    entries_up: int


class Drawn(NamedTuple):
    """Participants and network of some iterations.

    Attributes
    ----------
    participants, uploaders : int array (T, P, lanes)
        Clients that download and that upload, if they are reached.
    network : NetworkSide or None
        Who is reached, channels and delays.
    """

    participants: IndexArray
    uploaders: IndexArray
    network: NetworkSide | None


class Network(HookHolder):
    """Availability, channels and delays of several trials.

    Parameters
    ----------
    scenario : Scenario
        What is simulated.
    seed : int
        Seed of all randomness.
    trials : range
        Which trials.
    sizes : MessageSizes, optional
        Of messages that are not M entries of |S_n| participants.
    """

    def __init__(
        self, scenario: "Scenario", seed: int, trials: range, sizes: "MessageSizes | None" = None
    ) -> None:
        lanes = len(trials)
        if sizes is None:
            shared = scenario.num_shared
            sizes = MessageSizes(scenario.num_participants, shared, shared, scenario.dimension)
        self._scenario, self._sizes = scenario, sizes
        participants, shared = sizes.participants, sizes.up
        availability, links, delay = scenario.availability, scenario.channel, scenario.delay
        self._available: AvailableClients | None = None
        if availability is not None:
            shares = availability.shares(scenario.num_clients, scenario.data.fleet_seed)
            self._available = AvailableClients(
                availability,
                shares,
                make_stream(seed, "availability", trials),
                availability.memory_size(scenario.dimension),
            )
        series = ((), ()) if links is None else (links.up, links.down)
        sides: list[ChannelSide] = []
        hooks: list[Hook] = []
        for source, channels, size in zip(
            ("channel_up", "channel_down"), series, (sizes.up, sizes.down), strict=True
        ):
            streams = [make_stream(seed, source, trials, place) for place in range(len(channels))]
            entries = sizes.entries_up if source == "channel_up" else scenario.dimension
            memory = [scenario.num_clients * channel.memory_size(entries) for channel in channels]
            check_size(f"channel.{source.removeprefix('channel_')}", sum(memory))
            side, own = make_channels(channels, streams, participants, size, lanes, memory)
            sides.append(side)
            hooks += own
        self._up, self._down = sides
        self._hooks = tuple(hooks)
        self._received = np.empty((participants, sizes.down, lanes))
        self._held = np.empty((scenario.dimension, lanes))
        kept = (
            0 if scenario.learner.kind == "lms" else len(scenario.learner.initial_memory(scenario.dimension))
        )
        self._held_memory = np.empty((lanes, kept))
        stream = make_stream(seed, "delay", trials)
        self._delays = Delays(delay, stream, scenario.num_clients, participants, shared, scenario.dimension)
        self.is_on: bool = any(part is not None for part in (availability, links, delay))
        # How often each client has uploaded, where privacy depends on it.
        counts = links is not None and any(channel.kind == "private" for channel in links.up)
        self.upload_counts: IntArray = np.zeros((scenario.num_clients if counts else 0, lanes), np.int64)

    def draw(
        self,
        first: int,
        count: int,
        participation: Stream,
        uplink: Stream | None,
        exchanges: IntArray | None = None,
    ) -> "Drawn":
        """Draw `count` iterations from number `first` on.

        ``exchanges`` (T,) says how many of those drawn take part, where that is not the same in every iteration.
        """
        scenario = self._scenario
        there = None if self._available is None else self._available.draw(first, count)
        participants, downloads, asked = self._draw_participants(participation, first, count, there)
        uploaders, uploads = participants, downloads
        if uplink is not None:
            uploaders, uploads, asked = self._draw_participants(uplink, first, count, there)
        if not self.is_on:
            return Drawn(participants, uploaders, None)
        if exchanges is not None:
            if there is not None and scenario.availability is not None and scenario.availability.server_knows:
                fill_places(there, asked, participants)
            is_asked = np.arange(participants.shape[1])[None, :, None] < exchanges[:, None, None]
            downloads = uploads = (
                downloads & is_asked
                if downloads.size
                else np.broadcast_to(is_asked, participants.shape).copy()
            )
            asked = np.minimum(asked, exchanges[:, None])
        if self.upload_counts.size:
            _count_uploads(uploaders, uploads, self.upload_counts)
        learns = _ALL_LEARN
        if there is not None and scenario.availability is not None:
            learns = there.view(np.uint8) if scenario.availability.learns == "available" else _ALL_LEARN
        side = NetworkSide(
            downloads=downloads,
            uploads=uploads,
            asked=asked,
            learns=learns,
            up=self._up,
            down=self._down,
            received=self._received,
            held=self._held,
            held_memory=self._held_memory,
            delay=self._delays.draw(first, uploaders, asked),
        )
        return Drawn(participants, uploaders, side)

    def _draw_participants(
        self, stream: Stream, first: int, count: int, there: BoolArray | None
    ) -> tuple[IndexArray, BoolArray, IntArray]:
        """Return participants, whether each is reached, and how many were asked."""
        scenario, lanes, most = self._scenario, stream.key.size, self._sizes.participants
        out = np.empty((count, most, lanes), np.int32)
        asked = np.full((count, lanes), most)
        if there is not None and scenario.availability is not None and scenario.availability.server_knows:
            reached = np.empty(out.shape, np.bool_)
            draw_from_available(stream.key, stream.gamma, first, there.view(np.uint8), asked, reached, out)
            return out, reached, asked
        draw_participants(stream.key, stream.gamma, first, scenario.num_clients, out)
        if not self.is_on:
            return out, _EVERYBODY, asked
        reached = np.ones(out.shape if there is not None else (0, 0, 0), np.bool_)
        if there is not None:
            find_reached(there, out, reached)
        return out, reached, asked


@kernel_part
def download(server: FloatArray, participants: IndexArray, entries: IndexArray, clients: FloatArray) -> None:
    """Let all participants (P, lanes) download their ``entries`` (P, M, lanes)."""
    for p in range(entries.shape[0]):
        for m in range(entries.shape[1]):
            for lane in range(entries.shape[2]):
                i = entries[p, m, lane]
                clients[participants[p, lane], i, lane] = server[i, lane]


@kernel_part
def _download_if_reached(
    server: FloatArray, participants: IndexArray, entries: IndexArray, reached: BoolArray, clients: FloatArray
) -> None:
    """Let the participants download that are ``reached`` (P, lanes)."""
    for p in range(entries.shape[0]):
        for m in range(entries.shape[1]):
            for lane in range(entries.shape[2]):
                i, k = entries[p, m, lane], participants[p, lane]
                # Who is reached cannot be foreseen: both values are read, and no branch is taken.
                old, new = clients[k, i, lane], server[i, lane]
                clients[k, i, lane] = new if reached[p, lane] else old


@kernel_part
def download_through(
    t: int,
    n: int,
    network: NetworkSide,
    server: FloatArray,
    target: FloatArray,
    participants: IndexArray,
    entries: IndexArray,
    left: IntArray,
    asked: IntArray,
    clients: FloatArray,
) -> None:
    """Let participants that are reached download, unless ``left`` (K, lanes; may be empty) is above 0."""
    num_participants, num_shared, lanes = entries.shape
    received, own, is_partial = network.received, network.down.receiver, network.downloads.size > 0
    if network.down.addresses.size == 0 and left.size == 0:
        if is_partial:
            _download_if_reached(server, participants, entries, network.downloads[t], clients)
        else:
            download(server, participants, entries, clients)
        return
    for p in range(num_participants):
        for m in range(num_shared):
            for lane in range(lanes):
                received[p, m, lane] = server[entries[p, m, lane], lane]
        if is_partial or left.size:
            for lane in range(lanes):
                is_out = left.size > 0 and left[participants[p, lane], lane] != 0
                if is_out or (is_partial and not network.downloads[t, p, lane]):
                    for m in range(num_shared):
                        received[p, m, lane] = np.nan
    if network.down.addresses.size:
        for p in range(own.shape[0]):
            for m in range(num_shared):
                for lane in range(lanes):
                    own[p, m, lane] = clients[participants[p, lane], entries[p, m, lane], lane]
        transmit(network.down, n, clients.shape[0], target, Uploads(participants, entries, received, asked))
    for p in range(num_participants):
        for m in range(num_shared):
            for lane in range(lanes):
                k, i, value = participants[p, lane], entries[p, m, lane], received[p, m, lane]
                old = clients[k, i, lane]
                clients[k, i, lane] = value if value == value else old


@kernel_part
def silence_unreached(t: int, network: NetworkSide, sent: FloatArray) -> None:
    """Set the uploads of clients that are not reached to NaN."""
    if network.uploads.size == 0:
        return
    for p in range(sent.shape[0]):
        for m in range(sent.shape[1]):
            for lane in range(sent.shape[2]):
                value = sent[p, m, lane]
                sent[p, m, lane] = value if network.uploads[t, p, lane] else np.nan


@kernel_part
def upload_through(
    n: int, num_clients: int, network: NetworkSide, server: FloatArray, target: FloatArray, uploads: Uploads
) -> None:
    """Pass uploads through the channels, in place."""
    if network.up.addresses.size == 0:
        return
    own = network.up.receiver
    for p in range(own.shape[0]):
        for m in range(own.shape[1]):
            for lane in range(own.shape[2]):
                own[p, m, lane] = server[uploads.entries[p, m, lane], lane]
    transmit(network.up, n, num_clients, target, uploads)


@compiled
def _count_uploads(uploaders: IndexArray, uploads: BoolArray, out: IntArray) -> None:
    """Count how often each client uploads; an empty array of uploads stands for all."""
    for t in range(uploaders.shape[0]):
        for p in range(uploaders.shape[1]):
            for lane in range(uploaders.shape[2]):
                out[uploaders[t, p, lane], lane] += uploads.size == 0 or uploads[t, p, lane]
