"""Flower's HTTP clients, opened with an authority's certificate."""

from pathlib import Path
from typing import Any

import httpx

from psofed.common.errors import PsofedError
from psofed.federation.flower.errors import UnreachableError
from psofed.federation.flower.trees import CHUNK_BYTES

MAX_ANSWER = CHUNK_BYTES + (1 << 20)
"""Bytes of the longest answer that a node reads: a chunk of an array, and what is around it."""


def open_client(client: Any, server: str, authority: Path, interceptors: list[Any]) -> Any:
    """Return a client of class `client` for `server`, which must show a certificate of `authority`."""
    import ssl

    try:
        return client.from_server_address(server, False, authority.read_bytes(), interceptors=interceptors)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise PsofedError(f"{authority} is not an authority's certificate: {error}") from None


def bound_answers(client: Any) -> None:
    """Let a client of Flower's read no answer that is compressed, redirected, of unknown length or too long.

    An answer that unpacks to gigabytes is then refused before any of it is read.
    """
    http: httpx.Client = client._client
    http.follow_redirects = False
    http.headers["accept-encoding"] = "identity"
    http.event_hooks = {"response": [_check_answer]}


def _check_answer(response: httpx.Response) -> None:
    # Whoever sends chunks may state any length beside them: the chunks count.
    length = "" if "transfer-encoding" in response.headers else response.headers.get("content-length", "")
    if response.is_redirect:
        raise UnreachableError("the server redirects this node")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise UnreachableError("the server sent a compressed answer")
    if not length.isascii() or not length.isdigit() or int(length[:16]) > MAX_ANSWER:
        raise UnreachableError(f"the server sent an answer of {length[:16] or 'unknown'} bytes")
