"""The front door: the one port that nodes reach, and all that a stranger can touch.

The SuperLink serves three APIs on one port. Fleet, which nodes use, asks for a registered key. Control, which submits
runs and registers keys, asks for nothing. So the SuperLink listens on loopback, and everything from outside comes
through here: TLS ends here, a request's head is read strictly and within a deadline, its key and signature are
checked, and only then is anything opened inward. Then the body is read, too, and passed on only if it is a call that
an honest node could make in its own name (:class:`psofed.federation.flower.Gate`).

A connection is a *guest* until it has proved a key. Guests are few: when there are too many, from one address or
altogether, the longest waiting one goes. An honest node proves its key within milliseconds, so a flood of idle or
half-sent connections pushes out itself. Behind a proved key there are a limit on connections, a limit on a body's
length near the model's size, and quotas on bytes and requests that are filled up when the node is asked for a reply.
A signature opens one request and no second one, whatever it asks for.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from psofed.common.errors import PsofedError
from psofed.federation.deploy.credentials import Credentials
from psofed.federation.deploy.limits import DoorLimits, NodeQuotas, QuotaError
from psofed.federation.deploy.requests import MAX_HEAD, KeyRing, RefusedError, Request, read_head
from psofed.federation.deploy.traffic import CountingSocket, Meter
from psofed.federation.deploy.upstream import Upstream, UpstreamError
from psofed.federation.flower import CHUNK_BYTES, INLINE_BYTES, NOTED, Gate, most_objects, number_of_key
from psofed.federation.protocol.bell import BellService

_SMALL_BODY = 4096  # more than any request has but those that push a message or an object
_ANNOUNCEMENT = 1 << 15  # a reply without its content, or an object tree: the reason of an error, say
_BYTES_PER_OBJECT = 80  # in a tree
_ANSWERS = {
    400: "Bad Request",
    403: "Forbidden",
    411: "Length Required",
    413: "Content Too Large",
    429: "Too Many Requests",
    502: "Bad Gateway",
    504: "Gateway Timeout",
}


@dataclass
class _Guest:
    """A connection that has not proved a key."""

    address: str
    task: asyncio.Task[None] | None = None


class FrontDoor:
    """Passes requests of known nodes on to the SuperLink at (127.0.0.1, target), in a separate thread.

    Parameters
    ----------
    host, port
        Where nodes connect; port 0 becomes a free one.
    target : int
        The SuperLink's port on loopback.
    credentials : Credentials
        The server's certificate, and the keys that are let in.
    counts : path
        Where the bytes are counted.
    bell : str
        Path of the doorbell's socket.
    limits : DoorLimits
        What it puts up with.
    """

    def __init__(
        self,
        host: str,
        port: int,
        target: int,
        credentials: Credentials,
        counts: Path,
        bell: str,
        limits: DoorLimits | None = None,
    ) -> None:
        self.host: str = host
        self.port: int = port
        self.limits: DoorLimits = limits or DoorLimits()
        self.keys: KeyRing = KeyRing(credentials.folder)
        self.meter: Meter = Meter(counts)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._tls.load_cert_chain(credentials.certificate, credentials.key)
        except ssl.SSLError:
            raise PsofedError(
                f"{credentials.certificate} and {credentials.key} are damaged or not a pair; move both away and run: "
                "psofed federation certs"
            ) from None
        inward = ssl.create_default_context(cafile=str(credentials.link_certificate))
        self._upstream = Upstream(target, inward, credentials.read_secret())
        self._quotas = NodeQuotas(self.limits)
        self._bell = BellService(
            bell, self._set_size, lambda number: self._quotas.refill(number, time.monotonic())
        )
        self._guests: OrderedDict[int, _Guest] = OrderedDict()
        self._connections: dict[int, int] = {}
        self._gate = Gate()
        self._model_bytes = 0
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="front door", daemon=True)

    def __enter__(self) -> Self:
        self.meter.__enter__()
        self._thread.start()
        self._ready.wait(timeout=10)
        if self._failure is not None:
            self.__exit__()
            raise PsofedError(
                f"cannot listen on {self.host}:{self.port}: {self._failure.strerror}; choose another --host or --port"
            )
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout=10)
        self.meter.__exit__()

    def renew(self, credentials: Credentials) -> None:
        """Show the server's new certificate on connections from now on; an SSLError says that its files do not fit."""
        files = (credentials.certificate, credentials.key)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
        self._loop.call_soon_threadsafe(self._tls.load_cert_chain, *files)

    # --- accepting ----------------------------------------------------------------------------------------

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
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            listener.listen(1024)
            listener.setblocking(False)
            self.port = listener.getsockname()[1]
            await self._bell.start()
            self._ready.set()
            accepting = asyncio.create_task(self._accept(listener))
            await self._stopping.wait()
            accepting.cancel()
        await self._bell.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(accepting, *self._tasks, return_exceptions=True)
        self._upstream.close()
        await asyncio.sleep(0.01)  # for the last connections to be closed

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.1)  # no file descriptor left, or a connection that has gone already
                continue
            self.meter.count(connections=1)
            guest = _Guest(str(address[0]))
            self._make_room(guest.address)
            identity = id(guest)
            self._guests[identity] = guest
            connection = CountingSocket.of(accepted, self.meter)
            guest.task = asyncio.create_task(self._welcome(connection, identity))
            self._tasks.add(guest.task)
            guest.task.add_done_callback(self._tasks.discard)
            # For a guest who is told to go before its task has begun.
            guest.task.add_done_callback(partial(_hang_up, connection))

    def _make_room(self, address: str) -> None:
        """Close the longest waiting guest's connection if there are too many."""
        same = [key for key, guest in self._guests.items() if guest.address == address]
        oldest = None
        if len(same) >= self.limits.guests_per_address:
            oldest = same[0]
        elif len(self._guests) >= self.limits.guests:
            oldest = next(iter(self._guests))
        if oldest is not None:
            gone = self._guests.pop(oldest)
            if gone.task is not None:
                gone.task.cancel()

    async def _welcome(self, connection: CountingSocket, guest: int) -> None:
        """Serve one connection from its TLS handshake to its end."""
        reader = asyncio.StreamReader(limit=MAX_HEAD)
        protocol = asyncio.StreamReaderProtocol(reader)
        writer = None
        try:
            async with asyncio.timeout(self.limits.head_seconds):
                await self._first_byte(connection)
                transport, _ = await self._loop.connect_accepted_socket(
                    lambda: protocol,
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=self.limits.head_seconds,
                    ssl_shutdown_timeout=1.0,
                )
                writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
                head = await reader.readuntil(b"\r\n\r\n")
            await self._answer_guest(head, reader, writer, guest)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError, asyncio.LimitOverrunError):
            pass  # gone, too slow, too much, or told to go
        finally:
            self._guests.pop(guest, None)
            if writer is None:
                connection.close()
            else:
                await _close(writer)

    async def _first_byte(self, connection: CountingSocket) -> None:
        """Wait for the first byte: a silent connection gets no TLS session, which takes 300 kB."""
        arrived = asyncio.Event()
        self._loop.add_reader(connection, arrived.set)
        try:
            await arrived.wait()
        finally:
            self._loop.remove_reader(connection)

    async def _answer_guest(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, guest: int
    ) -> None:
        number: int | None = None
        try:
            request = read_head(head)
            key = self.keys.check(request)
            if self._connections.get(number_of_key(key), 0) >= self.limits.connections_per_node:
                raise RefusedError("too many connections of this node", 429)
            number = number_of_key(key)
            self._connections[number] = self._connections.get(number, 0) + 1
            self._guests.pop(guest, None)
            while True:
                await self._pass_on(request, head, key, reader, writer)
                async with asyncio.timeout(self.limits.idle_seconds):
                    head = await reader.readuntil(b"\r\n\r\n")
                request = read_head(head)
                if not self.keys.knows(request, key):
                    raise RefusedError("unknown-key")
                self.keys.check_time(request, key)
        except RefusedError as refusal:
            await _refuse(writer, refusal)
        finally:
            if number is not None:
                self._connections[number] -= 1

    # --- one request --------------------------------------------------------------------------------------

    async def _pass_on(
        self,
        request: Request,
        head: bytes,
        key: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        number = number_of_key(key)
        if request.length > self._longest_body(request.call):
            raise RefusedError(f"{request.call}: a body of {request.length} bytes", 413)
        try:
            wait = self._quotas.spend(number, len(head) + request.length, time.monotonic())
        except QuotaError as error:
            raise RefusedError(str(error), 429) from None
        deadline = self.limits.body_seconds + request.length / self.limits.body_rate
        async with asyncio.timeout(deadline):
            body = await reader.readexactly(request.length)
        await asyncio.sleep(wait)
        reason = self._gate.why_refused(request.call, body, key, most_objects(self._model_bytes))
        if reason is not None:
            raise RefusedError(reason)
        rung = False
        if request.call == "pull-messages" and not self._gate.may_pass(key):
            rung = await self._bell.hold(number, self.limits.hold_seconds)
            if reader.at_eof() or writer.is_closing():
                raise EOFError  # gone meanwhile: a message handed out now would be lost
        note = partial(self._gate.note, request.call, key, body, rung=rung) if request.call in NOTED else None
        try:
            await self._upstream.exchange(head, body, writer, deadline, note)
        except UpstreamError as error:
            raise RefusedError(str(error), error.status) from None

    def _longest_body(self, call: str) -> int:
        if call == "push-object":
            return min(self._quotas.max_body, CHUNK_BYTES + self.limits.base_body)
        if call == "push-messages":
            return _ANNOUNCEMENT + max(_BYTES_PER_OBJECT * most_objects(self._model_bytes), INLINE_BYTES)
        return _SMALL_BODY

    def _set_size(self, model_bytes: int) -> None:
        self._model_bytes = max(0, min(model_bytes, 1 << 40))
        self._quotas.set_model_bytes(self._model_bytes)


def _hang_up(connection: CountingSocket, _: object) -> None:
    connection.close()


async def _refuse(writer: asyncio.StreamWriter, refusal: RefusedError) -> None:
    reason = "".join(c for c in str(refusal) if c.isascii() and c.isprintable())[:100]
    writer.write(
        f"HTTP/1.1 {refusal.status} {_ANSWERS.get(refusal.status, 'Refused')}\r\npsofed-reason: {reason}\r\n"
        "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
    )
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection; abort it after a second."""
    writer.close()
    try:
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
    except (OSError, TimeoutError, asyncio.CancelledError):
        writer.transport.abort()
