"""What is retained at the hub: the description of the run, by the server, and each node's presence."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psofed.federation_new.protocol.bounds import MAX_DESCRIPTION
from psofed.federation_new.protocol.frames import VERSION, Fields, FrameError, decode_object
from psofed.federation_new.protocol.names import check_client_names


@dataclass(frozen=True)
class RunDescription:
    """The run that nodes take part in.

    Attributes
    ----------
    session : str
        Names the run across restarts; nodes obey instructions of this session only.
    settings : mapping
        As of :class:`psofed.federation_new.protocol.run_settings.RunSettings`.
    """

    session: str
    settings: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """Return the retained bytes."""
        return json.dumps(
            {"psofed": VERSION, "session": self.session, "settings": dict(self.settings)}
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "RunDescription":
        """Read what :meth:`to_bytes` gave, or raise ValueError."""
        fields = _decode(data)
        settings = fields.get("settings")
        session = fields.text("session", 64)
        if type(settings) is not dict or not session:
            raise FrameError("no session, or no settings")
        return cls(session, settings)


@dataclass(frozen=True)
class Announcement:
    """What a node that is online says of itself: the clients of a gateway, None for any other node."""

    clients: tuple[str, ...] | None = None

    def to_bytes(self) -> bytes:
        """Return the retained bytes."""
        return json.dumps({"psofed": VERSION, "clients": self.clients}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Announcement":
        """Read what :meth:`to_bytes` gave, or raise ValueError."""
        fields = _decode(data)
        if fields.get("clients") is None:
            return cls()
        return cls(check_client_names(fields.items_of("clients", str), gateway=True))


def _decode(data: bytes) -> Fields:
    fields = decode_object(data, MAX_DESCRIPTION)
    if fields.get("psofed") != VERSION:
        raise FrameError(
            f"format {fields.get('psofed')!r}, this psofed speaks {VERSION}: update the older one"
        )
    return fields
