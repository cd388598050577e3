"""Letting nodes in and nobody else: only Flower's Fleet API is passed on to the SuperLink.

The SuperLink serves three APIs on one port. Fleet, which nodes use, asks for a registered key. Control, which
submits runs and registers keys, asks for nothing, so whoever reaches it can run code on every node. The SuperLink
therefore listens on loopback only, and what comes from outside comes through this gate: it ends TLS with the
server's certificate, reads each request's head strictly, and refuses all but ``POST /v1/fleet/…``.
"""

import asyncio
import re
import ssl

from psofed.federation.deploy.credentials import Credentials
from psofed.federation.deploy.service import CHUNK, Service, close

_MAX_HEAD = 32 * 1024
_MAX_BODY = 1 << 31
_REQUEST = re.compile(rb"POST /v1/fleet/[a-z-]+ HTTP/1\.1")
_HEADER = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([\x20-\x7e\t]*)")
_FORBIDDEN = {b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer"}
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class RefusedError(ValueError):
    """A request that is not passed on."""


class Gate(Service):
    """Passes requests of the Fleet API on to the SuperLink at (127.0.0.1, target), on a loopback port."""

    def __init__(self, target: int, credentials: Credentials) -> None:
        inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        inward.minimum_version = ssl.TLSVersion.TLSv1_2
        inward.load_cert_chain(credentials.certificate, credentials.key)
        super().__init__("127.0.0.1", 0, inward)
        self.target = target
        self._onward = ssl.create_default_context(cafile=str(credentials.authority))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on one connection's requests until one is refused or the node is done."""
        back, onward = await asyncio.open_connection("127.0.0.1", self.target, ssl=self._onward)
        answers = asyncio.create_task(_pump(back, writer))
        try:
            while not answers.done():
                head = await reader.readuntil(b"\r\n\r\n")
                length = check_head(head)
                onward.write(head)
                while length:
                    chunk = await reader.read(min(length, CHUNK))
                    if not chunk:
                        return
                    onward.write(chunk)
                    await onward.drain()
                    length -= len(chunk)
                await onward.drain()
        except (RefusedError, asyncio.LimitOverrunError):
            writer.write(_REFUSAL)
            await writer.drain()
        finally:
            answers.cancel()
            await close(onward)


def check_head(head: bytes) -> int:
    r"""Return the length of the body that follows a request's head, or raise RefusedError.

    Only one way of writing a request is let through, so that gate and SuperLink cannot read it differently.

    Examples
    --------
    >>> check_head(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n")
    12
    >>> check_head(b"POST /v1/control/start-run HTTP/1.1\r\nContent-Length: 12\r\n\r\n")
    Traceback (most recent call last):
    psofed.federation.deploy.gate.RefusedError: POST /v1/control/start-run HTTP/1.1
    """
    if len(head) > _MAX_HEAD or not head.endswith(b"\r\n\r\n"):
        raise RefusedError("no head")
    first, *lines = head[:-4].split(b"\r\n")
    if not _REQUEST.fullmatch(first):
        raise RefusedError(first[:80].decode("ascii", "replace"))
    lengths = []
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise RefusedError("a header that is none")
        name = match[1].lower()
        if name in _FORBIDDEN:
            raise RefusedError(name.decode())
        if name == b"content-length":
            lengths.append(match[2])
    if len(lengths) != 1 or not re.fullmatch(rb"[0-9]{1,10}", lengths[0]) or int(lengths[0]) > _MAX_BODY:
        raise RefusedError("no length, or more than one")
    return int(lengths[0])


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK):
        writer.write(chunk)
        await writer.drain()
    writer.close()
