"""Counting bytes at the socket: a relay that passes on and counts.

The SuperNodes connect to the relay; TLS goes through it untouched, so it sees nothing but lengths. The
counts lie in a small memory-mapped file, where any process can read them at any moment.
"""

import asyncio
import contextlib
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from psofed.federation.deploy.service import CHUNK, Service, close

_RECORD = struct.Struct("<QQQ")


@dataclass(frozen=True)
class Traffic:
    """Bytes from the nodes (up), to the nodes (down), and connections, since the relay's file was made."""

    up: int = 0
    down: int = 0
    connections: int = 0

    def since(self, earlier: "Traffic") -> "Traffic":
        """Return what was added after `earlier`."""
        return Traffic(self.up - earlier.up, self.down - earlier.down, self.connections - earlier.connections)


def read_traffic(path: Path) -> Traffic | None:
    """Read a relay's counts, or None if there are none."""
    try:
        return Traffic(*_RECORD.unpack(path.read_bytes()))
    except (OSError, struct.error):
        return None


class Relay(Service):
    """A TCP relay from (host, port) to (127.0.0.1, target).

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> with Relay("127.0.0.1", 0, target=9, counts=Path(mkdtemp()) / "traffic.bin") as relay:
    ...     relay.traffic
    Traffic(up=0, down=0, connections=0)
    """

    def __init__(self, host: str, port: int, target: int, counts: Path) -> None:
        super().__init__(host, port)
        self.target = target
        self.counts = counts

    def __enter__(self) -> Self:
        self.counts.parent.mkdir(parents=True, exist_ok=True)
        if read_traffic(self.counts) is None:
            self.counts.write_bytes(_RECORD.pack(0, 0, 0))
        self._file = self.counts.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), _RECORD.size)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._map.close()
        self._file.close()

    @property
    def traffic(self) -> Traffic:
        """What was counted so far."""
        return Traffic(*_RECORD.unpack(self._map[: _RECORD.size]))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on both ways until both sides have ended."""
        self._count(connections=1)
        back, onward = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            await asyncio.gather(self._pump(reader, onward, up=True), self._pump(back, writer, up=False))
        finally:
            await close(onward)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        while chunk := await reader.read(CHUNK):
            self._count(up=len(chunk)) if up else self._count(down=len(chunk))
            writer.write(chunk)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()

    def _count(self, up: int = 0, down: int = 0, connections: int = 0) -> None:
        was = self.traffic
        self._map[: _RECORD.size] = _RECORD.pack(was.up + up, was.down + down, was.connections + connections)
