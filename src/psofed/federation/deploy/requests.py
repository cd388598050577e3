"""Requests that the front door accepts: one way of writing them, from a node whose key is known.

Only one form of a request's head is read, so that front door and SuperLink cannot read it differently. It must carry
a public key that was registered and the key's signature over the present time, as every request of a Flower node does.
"""

import base64
import binascii
import contextlib
import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from psofed.common.errors import PsofedError
from psofed.federation.flower import (
    KEY_HEADER,
    SIGNATURE_HEADER,
    SIGNATURE_SECONDS,
    TIMESTAMP_HEADER,
    USED_SIGNATURE,
    WRONG_TIME,
    is_signed,
    is_timely,
    public_key_of,
)

MAX_HEAD = 16 * 1024
_MOST_SIGNATURES = 100_000  # of one key, within SIGNATURE_SECONDS
_REQUEST = re.compile(rb"POST /v1/fleet/([a-z-]+) HTTP/1\.1")
_HEADER = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([\x20-\x7e\t]*)")
_LENGTH = re.compile(rb"[0-9]{1,12}")
_FORBIDDEN = {b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer"}


class RefusedError(ValueError):
    """A request that is not passed on; `status` is the answer's."""

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Request:
    """A request's head.

    Attributes
    ----------
    call : str
        Last part of the path, say ``pull-messages``.
    length : int
        Bytes of the body.
    headers : dict
        By lower-case name.
    """

    call: str
    length: int
    headers: dict[str, str]


def read_head(head: bytes) -> Request:
    r"""Return what a request's head says, or raise RefusedError.

    Examples
    --------
    >>> read_head(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n").length
    12
    >>> read_head(b"POST /v1/control/start-run HTTP/1.1\r\nContent-Length: 12\r\n\r\n")
    Traceback (most recent call last):
    psofed.federation.deploy.requests.RefusedError: not a request of a node
    """
    if len(head) > MAX_HEAD or not head.endswith(b"\r\n\r\n"):
        raise RefusedError("malformed head", 400)
    first, *lines = head[:-4].split(b"\r\n")
    matched = _REQUEST.fullmatch(first)
    if matched is None:
        raise RefusedError("not a request of a node")
    headers: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise RefusedError("malformed header", 400)
        name = match[1].lower()
        if name in _FORBIDDEN or name.decode() in headers:
            raise RefusedError("forbidden or repeated header", 400)
        headers[name.decode()] = match[2].decode("ascii")
    length = headers.get("content-length", "")
    if not _LENGTH.fullmatch(length.encode()):
        raise RefusedError("no length", 411)
    return Request(matched[1].decode(), int(length), headers)


class KeyRing:
    """The accepted public keys, read again whenever their folder changes.

    Parameters
    ----------
    folder : path
        Holds a ``.pub`` file for each node.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state: tuple[int, ...] = ()
        self._names: dict[bytes, str] = {}
        self._used: dict[bytes, _Recent] = {}

    def names(self) -> dict[bytes, str]:
        """Return the nodes' names by public key."""
        paths = sorted(self.folder.glob("*.pub"))
        state = tuple(_stamps(paths))
        if state != self._state:
            self._names = {}
            for path in paths:
                with contextlib.suppress(PsofedError):  # the server names such a file when it starts
                    self._names[public_key_of(path)] = path.stem
            self._state = state
        return self._names

    def check(self, request: Request) -> bytes:
        """Return the public key that has signed `request`, or raise RefusedError."""
        headers = request.headers
        try:
            key = base64.b64decode(headers[KEY_HEADER], validate=True)
            signature = base64.b64decode(headers[SIGNATURE_HEADER], validate=True)
            timestamp = headers[TIMESTAMP_HEADER]
        except (KeyError, binascii.Error, ValueError):
            raise RefusedError("no-key") from None
        if key not in self.names():
            raise RefusedError("unknown-key")
        if not is_signed(key, timestamp, signature):
            raise RefusedError("wrong-signature")
        self.check_time(request, key)
        return key

    def check_time(self, request: Request, key: bytes) -> None:
        """Raise RefusedError if the signed time that `request` carries is not the present, or was used before.

        Flower signs the time and nothing else, so a request's headers would do for any other one within five minutes.
        """
        timestamp, now = request.headers.get(TIMESTAMP_HEADER, ""), time.time()
        if not is_timely(timestamp, now):
            raise RefusedError(f"{WRONG_TIME} {now:.3f}")
        if not self._used.setdefault(key, _Recent()).add(timestamp, time.monotonic()):
            raise RefusedError(USED_SIGNATURE)

    def knows(self, request: Request, key: bytes) -> bool:
        """Whether `request` carries the public key `key`, and that key is still registered."""
        try:
            carried = base64.b64decode(request.headers.get(KEY_HEADER, ""), validate=True)
        except (binascii.Error, ValueError):
            return False
        return carried == key and key in self.names()


class _Recent:
    """The times that one key has signed lately, each kept for at least as long as Flower accepts it."""

    def __init__(self) -> None:
        self._now: set[int] = set()
        self._before: set[int] = set()
        self._turned = -math.inf

    def add(self, timestamp: str, now: float) -> bool:
        """Add a time, and return whether it is new; False, too, if there are more than any node needs."""
        if now - self._turned > SIGNATURE_SECONDS:
            self._before = self._now if now - self._turned < 2 * SIGNATURE_SECONDS else set()
            self._now, self._turned = set(), now
        mark = hash(timestamp)
        if mark in self._now or mark in self._before or len(self._now) >= _MOST_SIGNATURES:
            return False
        self._now.add(mark)
        return True


def _stamps(paths: Iterable[Path]) -> Iterable[int]:
    for path in paths:
        found = path.stat()
        yield from (hash(path.name), found.st_ino, found.st_mtime_ns)
