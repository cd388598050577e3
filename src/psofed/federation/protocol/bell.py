"""A doorbell between the server's exchange and the front door, so that nobody need poll.

The front door holds a node's question "is there a message for me?" until the exchange rings for that node, or for a
few seconds. And it tells the exchange when a node asks again: then its reply is complete. Both speak lines of text
over a Unix socket in a folder that only its owner can enter:

    exchange → door    ``ring NUMBER``, ``size BYTES`` (of the model, for the limit on requests)
    door → exchange    ``idle NUMBER``

A bell that is absent or broken costs time, never a reply: the exchange then looks for itself now and then.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO, Self

BELL_VARIABLE = "PSOFED_BELL"
_MAX_LINE = 64


class Bell:
    """The exchange's end: rings for nodes and hears when they are done.

    Examples
    --------
    >>> Bell(None).wait(timeout=0.0)
    set()
    """

    def __init__(self, path: str | None) -> None:
        self._news = threading.Condition()
        self._idle: set[int] = set()
        self._socket: socket.socket | None = None
        if path:
            with contextlib.suppress(OSError):
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(path)
                self._socket = connection
                lines = connection.makefile("rb")
                threading.Thread(target=self._listen, args=(lines,), name="bell", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    @property
    def is_connected(self) -> bool:
        """Whether there is a front door that hears the bell."""
        return self._socket is not None

    @classmethod
    def from_environment(cls) -> "Bell":
        """Return the bell that this process was told of, or one that never rings."""
        return cls(os.environ.get(BELL_VARIABLE) or None)

    def ring(self, numbers: Iterable[int]) -> None:
        """Let the front door pass on the questions of these nodes."""
        numbers = list(numbers)
        with self._news:
            self._idle.difference_update(numbers)
        self._send("".join(f"ring {number}\n" for number in numbers))

    def say_size(self, model_bytes: int) -> None:
        """Tell the front door how large a model is."""
        self._send(f"size {model_bytes}\n")

    def wait(self, timeout: float) -> set[int]:
        """Return the nodes that are done since the last call, at the latest after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with self._news:
            while not self._idle:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                self._news.wait(remaining)
            heard, self._idle = self._idle, set()
        return heard

    def _send(self, text: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendall(text.encode())

    def _listen(self, lines: BinaryIO) -> None:
        with contextlib.suppress(OSError, ValueError), lines:
            for line in lines:
                word, _, number = line.strip().partition(b" ")
                if word == b"idle":
                    with self._news:
                        self._idle.add(int(number))
                        self._news.notify_all()
        self.close()


class BellService:
    """The front door's end, within its event loop."""

    def __init__(self, path: str, on_size: Callable[[int], None], on_ring: Callable[[int], None]) -> None:
        self.path = path
        self._on_size = on_size
        self._on_ring = on_ring
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._rung: set[int] = set()
        self._listeners: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_unix_server(self._connect, self.path, limit=_MAX_LINE)

    async def stop(self) -> None:
        """End listening."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def hold(self, number: int, seconds: float) -> bool:
        """Wait until the bell rings for node `number`, at most `seconds`, and return whether it has rung."""
        if number in self._rung:
            self._rung.discard(number)
            return True
        for writer in self._listeners:
            writer.write(f"idle {number}\n".encode())
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(number, []).append(future)
        try:
            async with asyncio.timeout(seconds):
                await future
            return True
        except TimeoutError:
            return False
        finally:
            held = self._waiting.get(number, [])
            if future in held:
                held.remove(future)
                if not held:
                    self._waiting.pop(number, None)

    def _release(self, number: int) -> bool:
        futures = self._waiting.pop(number, [])
        for future in futures:
            if not future.done():
                future.set_result(None)
        return bool(futures)

    def _ring(self, number: int) -> None:
        self._on_ring(number)
        if not self._release(number):
            self._rung.add(number)  # it is not asking at the moment: its next question passes at once

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._listeners.add(writer)
        task = asyncio.current_task()
        assert task is not None  # a connection is served by a task
        self._tasks.add(task)
        try:
            while line := await reader.readline():
                word, _, number = line.decode("ascii").strip().partition(" ")
                if word == "ring":
                    self._ring(int(number))
                elif word == "size":
                    self._on_size(int(number))
        except (OSError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # what is not understood ends the connection
        finally:
            self._tasks.discard(task)
            self._listeners.discard(writer)
            self._rung.clear()
            writer.transport.abort()
