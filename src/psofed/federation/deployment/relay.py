"""Counting bytes at the socket: a relay in front of the SuperLink that passes on and counts.

The SuperNodes connect to the relay; TLS goes through it untouched, so it sees nothing but lengths. The
counts lie in a small memory-mapped file, where any process can read them at any moment.
"""

import asyncio
import contextlib
import mmap
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from psofed.errors import PsofedError

_RECORD = struct.Struct("<QQQ")
_CHUNK = 1 << 16


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


class Relay:
    """A TCP relay in a thread of its own, from (host, port) to the SuperLink at (127.0.0.1, target).

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> with Relay("127.0.0.1", 0, target=9, counts=Path(mkdtemp()) / "traffic.bin") as relay:
    ...     relay.traffic
    Traffic(up=0, down=0, connections=0)
    """

    def __init__(self, host: str, port: int, target: int, counts: Path) -> None:
        self.host = host
        self.port = port
        self.target = target
        self.counts = counts
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="psofed-relay", daemon=True)

    def __enter__(self) -> "Relay":
        self.counts.parent.mkdir(parents=True, exist_ok=True)
        if read_traffic(self.counts) is None:
            self.counts.write_bytes(_RECORD.pack(0, 0, 0))
        self._file = self.counts.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), _RECORD.size)
        self._thread.start()
        self._ready.wait(timeout=10)
        if self._failure is not None:
            self.__exit__()
            raise PsofedError(f"cannot listen on {self.host}:{self.port}: {self._failure.strerror}")
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=10)
        self._map.close()
        self._file.close()

    @property
    def traffic(self) -> Traffic:
        """What was counted so far."""
        return Traffic(*_RECORD.unpack(self._map[: _RECORD.size]))

    def _count(self, up: int = 0, down: int = 0, connections: int = 0) -> None:
        was = self.traffic
        self._map[: _RECORD.size] = _RECORD.pack(was.up + up, was.down + down, was.connections + connections)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as failure:
            self._failure = failure
            self._ready.set()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relay, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        self._count(connections=1)
        onward: asyncio.StreamWriter | None = None
        try:
            back, onward = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(self._pump(reader, onward, up=True), self._pump(back, writer, up=False))
        except (OSError, asyncio.CancelledError):
            pass  # one side has gone: both ends are closed below
        finally:
            for end in (writer, onward):
                if end is not None:
                    end.close()
            if task is not None:
                self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        while chunk := await reader.read(_CHUNK):
            self._count(up=len(chunk)) if up else self._count(down=len(chunk))
            writer.write(chunk)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
