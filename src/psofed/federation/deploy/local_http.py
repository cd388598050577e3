"""Small HTTP services for programs on this machine.

Whoever reaches a port can open connections and say nothing, so few are open at a time: beyond 32 the longest open one
is closed, as at the front door. And a web page can give this machine a name of its own and then read what it answers.
So a service on loopback answers only those who call it by loopback's names.
"""

import json
import logging
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, ClassVar
from urllib.parse import urlsplit

from psofed.common.errors import PsofedError
from psofed.federation.protocol.wire import clean_text

_log = logging.getLogger("psofed.federation")

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_CONNECTIONS = 32
_SECONDS = 5.0  # of silence within a request


@contextmanager
def serve_locally(
    handler: Callable[..., BaseHTTPRequestHandler], host: str, port: int, options: str
) -> Iterator[int]:
    """Serve requests while the block is open, and give the port; port 0 picks a free one.

    `options` are those by which a user chooses another address.
    """
    try:
        server = _Server(handler, host, port)
    except OSError as error:
        raise PsofedError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another {options}"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


class LocalHandler(BaseHTTPRequestHandler):
    """Answers one request in text; see :func:`serve_locally`."""

    server: "_Server"
    timeout: ClassVar[float | None] = _SECONDS
    kind = "application/json"

    def do_GET(self) -> None:
        """Answer a question."""
        self._answer(self.get)

    def do_POST(self) -> None:
        """Answer a question that has a body."""
        self._answer(self.post)

    def get(self) -> str:
        """Return the answer, of this `kind`; a PsofedError, ValueError or OSError is told in one line of JSON."""
        raise NotImplementedError

    def post(self) -> str:
        """Return the answer, as :meth:`get` does."""
        raise PsofedError("POST: there is only GET")

    def _answer(self, work: Callable[[], str]) -> None:
        status, kind = 200, self.kind
        try:
            self._check_host()
            text = work()
        except (PsofedError, ValueError, OSError) as error:
            status, kind, text = 400, "application/json", json.dumps({"error": clean_text(error)}) + "\n"
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing: the log is about the federation."""

    def _check_host(self) -> None:
        if self.server.is_local and urlsplit(f"//{self.headers.get('Host')}").hostname not in LOOPBACK:
            raise PsofedError("Host: must be 127.0.0.1 or localhost")


class _Server(ThreadingMixIn, TCPServer):
    """A thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, handler: Callable[..., BaseHTTPRequestHandler], host: str, port: int) -> None:
        self.address_family: int = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: OrderedDict[Any, None] = OrderedDict()
        self._lock = threading.Lock()
        super().__init__((host, port), handler)
        self.is_local: bool = self.server_address[0] in LOOPBACK

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in place of the longest open one if there are too many."""
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= _MOST_CONNECTIONS else None
            self._open.pop(oldest, None)
            self._open[request] = None
        if oldest is not None:
            with suppress(OSError):  # gone meanwhile
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note why a request broke off; whoever sent it may be gone."""
        _log.debug("a request broke off: %s", sys.exception())
