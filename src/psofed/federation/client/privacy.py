"""Private uploads: each is clipped and noisy before it leaves the client, and the privacy spent is counted.

With z = u − g the update of the entries that are shared, u the upload and g the server's values as last downloaded, the
server receives g + z · min(1, C/‖z‖) + N(0, (m C)² I); see :class:`psofed.channels.Private`.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.federation.protocol.replies import Reply
from psofed.parts.channels.built_in import Private
from psofed.parts.contexts import Transmission

PRIVACY = "psofed.privacy"
_NONE = np.zeros(0)


@dataclass(frozen=True)
class PrivacyRecord:
    """A client's memory of its uploads.

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

    def to_record(self) -> dict[str, Any]:
        """Return this value as a record."""
        return vars(self)


def note_download(
    records: Mapping[str, Any], dimension: int, entries: IntArray, values: FloatArray, when: str
) -> PrivacyRecord:
    """Return the memory after a download: the server's values, and one more upload counted."""
    before = read_privacy(records, dimension)
    known = before.known.copy()
    known[entries] = values
    return replace(before, known=known, uploads=before.uploads + (before.last != when), last=when)


def make_private(channel: Private, reply: Reply, record: PrivacyRecord, entries: IntArray) -> Reply:
    """Return the reply as it leaves the client, with the privacy spent among its metrics."""
    from psofed.results.privacy import gaussian_epsilon  # 2 MB that only private clients need

    assert reply.values is not None  # a client that has learned sends some
    digest = hashlib.sha256(f"{record.secret} {record.last}".encode()).digest()
    normals = np.random.default_rng(np.frombuffer(digest, np.uint32)).standard_normal(reply.values.size)
    values, out = np.asarray(reply.values, np.float64), np.empty(reply.values.size)
    channel.transmit(Transmission(values, record.known[entries], entries, 0, 0, normals, _NONE, 0.0), out)
    spent = {
        "privacy-epsilon": gaussian_epsilon(channel.multiplier, record.uploads, channel.delta),
        "privacy-delta": channel.delta,
        "privacy-uploads": record.uploads,
    }
    return replace(reply, values=out.astype(reply.values.dtype), metrics={**reply.metrics, **spent})


def read_privacy(records: Mapping[str, Any], dimension: int) -> PrivacyRecord:
    """Return what a client keeps about its uploads; a new secret and no upload at first."""
    record = records.get(PRIVACY)
    if isinstance(record, Mapping):
        record = PrivacyRecord(**record)
    if isinstance(record, PrivacyRecord) and record.known.size == dimension:
        return record
    return PrivacyRecord(np.zeros(dimension), secrets.token_hex(32), 0, "")
