"""A client's uplink: privacy and few bits per value, as the channels of a simulation do."""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IntArray
from psofed.federation.protocol.answers import FewBits, Reply
from psofed.federation.protocol.few_bits import draw_dither, step_of
from psofed.parts.channels.private import Private
from psofed.parts.channels.quantised import Quantised
from psofed.parts.contexts import Transmission
from psofed.parts.network import Channel
from psofed.results.privacy import gaussian_epsilon

UPLINK = "psofed.uplink"
_NONE = np.zeros(0)


def check_links(channels: Sequence[Channel]) -> None:
    """Refuse channels that a real client does not have."""
    kinds = [channel.kind for channel in channels]
    for kind in kinds:
        if kind not in ("private", "quantised"):
            raise NotCoveredError(
                f'channel.up.kind = "{kind}": a federation has real links; leave it out (its clients may be "private" '
                'and "quantised")'
            )
    if kinds not in ([], ["private"], ["quantised"], ["private", "quantised"]):
        raise NotCoveredError(
            f"channel.up = {kinds}: a federation's client is private, quantised, or private and then quantised"
        )


@dataclass(frozen=True)
class LinkRecord:
    """A client's memory of its link, in Flower's Context and, with it, on disk.

    Attributes
    ----------
    known : array (D,)
        The server's values as last downloaded, zeros at first.
    secret : str
        Seed of this client's noise, which nobody else knows.
    uploads : int
        Number of different uploads so far in this session.
    last : str
        Epoch and round of the last one: an answer that is asked for again is the same, and costs no privacy.
    """

    known: FloatArray
    secret: str
    uploads: int
    last: str

    def to_record(self) -> ConfigRecord:
        """Return this value as a record."""
        return ConfigRecord(
            {
                "known": self.known.astype("<f8").tobytes(),
                "secret": self.secret,
                "uploads": self.uploads,
                "last": self.last,
            }
        )


@dataclass(frozen=True)
class Uplink:
    """The channels of a client's uploads.

    Parameters
    ----------
    channels : sequence of Channel
        ``psofed.channels.Private``, ``Quantised``, both in this order, or none.
    """

    channels: tuple[Channel, ...]

    def __post_init__(self) -> None:
        check_links(self.channels)

    def note(
        self, records: Mapping[str, Any], dimension: int, entries: IntArray, values: FloatArray, when: str
    ) -> LinkRecord:
        """Return the link's new memory: the values downloaded from the server, and one more upload counted."""
        held = read_link(records, dimension)
        known = held.known.copy()
        known[entries] = values
        uploads = held.uploads + (held.last != when)
        return replace(held, known=known, uploads=uploads, last=when)

    def send(self, reply: Reply, held: LinkRecord, at: tuple[str, int, int], entries: IntArray) -> Reply:
        """Return the reply as it leaves the client, with the privacy spent among its metrics.

        `at` is the session, the client's number and the round, from which the server derives the dither.
        """
        assert reply.values is not None  # a client that has learned sends some
        values, metrics = np.asarray(reply.values, np.float64), dict(reply.metrics)
        few_bits: FewBits | None = None
        digest = hashlib.sha256(f"{held.secret} {held.last}".encode()).digest()
        generator = np.random.default_rng(np.frombuffer(digest, np.uint32))
        for channel in self.channels:
            out = np.empty(values.size)
            receiver, entries = held.known[entries], np.asarray(entries, np.int64)
            if isinstance(channel, Private):
                normals = generator.standard_normal(values.size)
                channel.transmit(Transmission(values, receiver, entries, 0, 0, normals, _NONE, 0.0), out)
                metrics |= _spent(channel, held.uploads)
            elif isinstance(channel, Quantised):
                is_dithered = channel.rounding == "dithered"
                uniforms = generator.random(values.size)
                if is_dithered:
                    uniforms = draw_dither(*at, values.size)
                channel.transmit(Transmission(values, receiver, entries, 0, 0, _NONE, uniforms, 0.0), out)
                step = step_of(channel.bits, channel.reach)
                shifted = out + (uniforms - 0.5) * step if is_dithered else out
                levels = np.rint((shifted + channel.reach) / step - 0.5).astype(np.uint64)
                few_bits = FewBits(levels, channel.bits, channel.reach, is_dithered)
            values = out
        return reply._replace(values=values.astype(reply.values.dtype), metrics=metrics, few_bits=few_bits)


def _spent(channel: Private, uploads: int) -> dict[str, Any]:
    return {
        "privacy-epsilon": gaussian_epsilon(channel.multiplier, uploads, channel.delta),
        "privacy-delta": channel.delta,
        "privacy-uploads": uploads,
    }


def read_link(records: Mapping[str, Any], dimension: int) -> LinkRecord:
    """Return what a client keeps about its link; a new secret and no upload at first."""
    record = records.get(UPLINK)
    if isinstance(record, LinkRecord) and record.known.size == dimension:
        return record
    if isinstance(record, ConfigRecord) and isinstance(known := record.get("known"), bytes):
        values = np.frombuffer(known, "<f8")
        if values.size == dimension:
            uploads = int(str(record["uploads"]))
            return LinkRecord(values, str(record["secret"]), uploads, str(record["last"]))
    return LinkRecord(np.zeros(dimension), secrets.token_hex(32), 0, "")
