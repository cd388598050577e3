"""A TCP server in a thread of its own, beside whatever else the process does."""

import asyncio
import contextlib
import ssl
import threading
from abc import ABC, abstractmethod
from typing import Self

from psofed.common.errors import PsofedError

CHUNK = 1 << 16


class Service(ABC):
    """Listens on (host, port) while its block is open; `port` 0 becomes a free one."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self._context = context
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    @abstractmethod
    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; it is closed afterwards."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(timeout=10)
        if self._failure is not None:
            self.__exit__()
            raise PsofedError(f"cannot listen on {self.host}:{self.port}: {self._failure.strerror}")
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=10)

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
        server = await asyncio.start_server(self._connect, self.host, self.port, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a connection is served by a task
        self._tasks.add(task)
        try:
            await self.handle(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # one side has gone
        finally:
            await close(writer)
            self._tasks.discard(task)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close one end of a connection, politely for a second."""
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), timeout=1.0)
    except (OSError, TimeoutError, asyncio.CancelledError):
        writer.transport.abort()
