"""Retained values at the hub: the description of the run, by the server, and each node's presence."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psofed.federation.protocol.bounds import MAX_DESCRIPTION
from psofed.federation.protocol.frames import VERSION, Fields, FrameError, decode_object
from psofed.federation.protocol.names import check_client_names, clean_text

_MAX_SESSION = 64


@dataclass(frozen=True)
class RunDescription:
    """The run that nodes take part in.

    Attributes
    ----------
    session : str
        Names the run across restarts; nodes obey instructions of this session only.
    settings : mapping
        As of :class:`psofed.federation.protocol.run_settings.RunSettings`.
    """

    session: str
    settings: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """Return the retained bytes."""
        document = {"psofed": VERSION, "session": self.session, "settings": dict(self.settings)}
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "RunDescription":
        """Read what :meth:`to_bytes` gave, or raise ValueError."""
        fields = _decode(data)
        settings = fields.get("settings")
        session = fields.text("session", _MAX_SESSION)
        if type(settings) is not dict or not session:
            raise FrameError("no session, or no settings")
        return cls(session, settings)


@dataclass(frozen=True)
class Announcement:
    """Presence of a node, in its own words.

    Attributes
    ----------
    session : str
        The run that it is ready for; empty before it knows of any. The server asks only nodes ready for its run.
    clients : tuple of str or None
        The clients of a gateway, None for any other node.
    problem : str
        Why it cannot take part; empty if it can.
    """

    session: str = ""
    clients: tuple[str, ...] | None = None
    problem: str = ""

    def to_bytes(self) -> bytes:
        """Return the retained bytes."""
        document = {"session": self.session, "clients": self.clients, "problem": clean_text(self.problem)}
        return json.dumps({"psofed": VERSION, **document}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Announcement":
        """Read what :meth:`to_bytes` gave, or raise ValueError."""
        fields = _decode(data)
        clients = None
        if fields.get("clients") is not None:
            clients = check_client_names(fields.items_of("clients", str), gateway=True)
        return cls(fields.text("session", _MAX_SESSION), clients, clean_text(fields.text("problem")))


def _decode(data: bytes) -> Fields:
    fields = decode_object(data, MAX_DESCRIPTION)
    if fields.get("psofed") != VERSION:
        version = fields.get("psofed")
        raise FrameError(f"format {version!r}, this psofed speaks {VERSION}: update the older one")
    return fields
