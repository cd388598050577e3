"""Bytes counted at the socket, TLS included, in a small file that any process can read at any moment."""

import mmap
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_RECORD = struct.Struct("<QQQ")


@dataclass(frozen=True)
class SocketTraffic:
    """Bytes from the nodes (up), to the nodes (down), and connections, since the file was made."""

    up: int = 0
    down: int = 0
    connections: int = 0

    def since(self, earlier: "SocketTraffic") -> "SocketTraffic":
        """Return what was added after `earlier`."""
        return SocketTraffic(
            self.up - earlier.up, self.down - earlier.down, self.connections - earlier.connections
        )


def read_traffic(path: Path) -> SocketTraffic | None:
    """Read the counts; None if there is no file."""
    try:
        return SocketTraffic(*_RECORD.unpack(path.read_bytes()))
    except (OSError, struct.error):
        return None


class Meter:
    """Counts bytes, and keeps the counts in a file so that they continue after a restart.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> with Meter(Path(mkdtemp()) / "traffic.bin") as meter:
    ...     meter.count(up=3)
    ...     meter.traffic
    SocketTraffic(up=3, down=0, connections=0)
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if read_traffic(self.path) is None:
            self.path.write_bytes(_RECORD.pack(0, 0, 0))
            self.path.chmod(0o600)
        self._file = self.path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), _RECORD.size)
        return self

    def __exit__(self, *error: object) -> None:
        self._map.close()
        self._file.close()

    @property
    def traffic(self) -> SocketTraffic:
        """Counts so far."""
        return SocketTraffic(*_RECORD.unpack(self._map[: _RECORD.size]))

    def count(self, up: int = 0, down: int = 0, connections: int = 0) -> None:
        """Add to the counts."""
        was = self.traffic
        self._map[: _RECORD.size] = _RECORD.pack(was.up + up, was.down + down, was.connections + connections)


class CountingSocket(socket.socket):
    """A socket that reports every byte it passes on; asyncio's TLS uses it like any other."""

    meter: Meter

    @classmethod
    def of(cls, accepted: socket.socket, meter: Meter) -> "CountingSocket":
        """Take over an accepted socket."""
        counting = cls(accepted.family, accepted.type, accepted.proto, accepted.detach())
        counting.setblocking(False)
        counting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        counting.meter = meter
        return counting

    def recv_into(self, *arguments: Any, **options: Any) -> int:
        """Receive and count."""
        count = super().recv_into(*arguments, **options)
        self.meter.count(up=count)
        return count

    def recv(self, *arguments: Any, **options: Any) -> bytes:
        """Receive and count."""
        data = super().recv(*arguments, **options)
        self.meter.count(up=len(data))
        return data

    def send(self, *arguments: Any, **options: Any) -> int:
        """Send and count."""
        count = super().send(*arguments, **options)
        self.meter.count(down=count)
        return count

    def sendmsg(self, *arguments: Any, **options: Any) -> int:
        """Send and count."""
        count = super().sendmsg(*arguments, **options)
        self.meter.count(down=count)
        return count
