"""Flower's HTTP clients, opened with an authority's certificate."""

from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError


def open_client(client: Any, server: str, authority: Path, interceptors: list[Any]) -> Any:
    """Return a client of class `client` for `server`, which must show a certificate of `authority`."""
    import ssl

    try:
        return client.from_server_address(server, False, authority.read_bytes(), interceptors=interceptors)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise PsofedError(f"{authority} is not an authority's certificate: {error}") from None
