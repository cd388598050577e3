"""From the front door to the SuperLink: a few reused connections on loopback."""

import asyncio
import re
import ssl
import time
from collections.abc import Callable

from psofed.federation.flower.inline import INLINE_BYTES
from psofed.federation.flower.link import SECRET_HEADER

_CHUNK = 1 << 16
_LONGEST_NOTED = 2 * INLINE_BYTES  # of an answer that the front door reads itself
_IDLE = 3.0  # uvicorn, which the SuperLink runs on, closes idle connections after five seconds
_ANSWER_SECONDS = 60.0
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UpstreamError(Exception):
    """The SuperLink did not answer; `status` is what to tell the node, which then tries again."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


class Upstream:
    """Connections to the SuperLink at (127.0.0.1, port), which is shown its `secret` with every request."""

    def __init__(self, port: int, tls: ssl.SSLContext | None, secret: str = "") -> None:
        self.port = port
        self._secret = f"\r\n{SECRET_HEADER}: {secret}\r\n".encode()
        self._tls = tls
        self._idle: list[tuple[float, _Connection]] = []

    async def exchange(
        self,
        head: bytes,
        body: bytes,
        answer: asyncio.StreamWriter,
        body_seconds: float,
        note: Callable[[bytes], None] | None = None,
    ) -> None:
        """Pass one request on and its answer back, chunk by chunk.

        With `note` the answer is read whole first, and `note` is called with its body if the SuperLink agreed.

        Raises
        ------
        UpstreamError
            Before anything of the answer was passed back.
        EOFError
            Later; both connections must then be closed.
        """
        connection = await self._take()
        reader, writer = connection
        reusable = False
        try:
            try:
                writer.write(head.replace(b"\r\n", self._secret, 1))
                writer.write(body)
                async with asyncio.timeout(body_seconds):
                    await writer.drain()
                async with asyncio.timeout(_ANSWER_SECONDS):
                    first = await reader.readuntil(b"\r\n\r\n")
                    found = _LENGTH.search(first)
                    if found is None:
                        raise UpstreamError("the SuperLink gave an answer without a length", 502)
                    remaining = int(found[1])
                    if note is not None and remaining > _LONGEST_NOTED:
                        raise UpstreamError(f"the SuperLink gave an answer of {remaining} bytes", 502)
                    noted = b"" if note is None else await reader.readexactly(remaining)
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                if isinstance(error, TimeoutError):
                    raise UpstreamError("the SuperLink took too long", 504) from None
                raise UpstreamError("the SuperLink does not answer", 502) from None
            if note is not None and first.startswith(b"HTTP/1.1 200 "):
                note(noted)
            remaining -= len(noted)
            answer.write(first + noted)
            while remaining:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    chunk = await reader.read(min(remaining, _CHUNK))
                    if not chunk:
                        raise EOFError
                    answer.write(chunk)
                    await answer.drain()
                remaining -= len(chunk)
            await answer.drain()
            reusable = _CLOSES.search(first) is None
        finally:
            if reusable:
                self._forget_stale()
                self._idle.append((time.monotonic(), connection))
            else:
                _hang_up(writer)

    def close(self) -> None:
        """Close the idle connections."""
        for _, (_, writer) in self._idle:
            _hang_up(writer)
        self._idle.clear()

    def _forget_stale(self) -> None:
        while self._idle and time.monotonic() - self._idle[0][0] >= _IDLE:
            _hang_up(self._idle.pop(0)[1][1])

    async def _take(self) -> _Connection:
        now = time.monotonic()
        while self._idle:
            since, connection = self._idle.pop()
            if now - since < _IDLE and not connection[0].at_eof() and not connection[1].is_closing():
                return connection
            _hang_up(connection[1])
        try:
            async with asyncio.timeout(5.0):
                return await asyncio.open_connection("127.0.0.1", self.port, ssl=self._tls, limit=1 << 17)
        except (OSError, TimeoutError):
            raise UpstreamError("the SuperLink does not answer", 502) from None


def _hang_up(writer: asyncio.StreamWriter) -> None:
    """End a connection at once; only `close` tells Python 3.11 that it was not forgotten."""
    writer.close()
    writer.transport.abort()
