"""Names of nodes and clients, and the numbers by which masks and participants are drawn.

A *client* is a name at a node: a gateway works for many clients, any other node for one without a name.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

MAX_CLIENTS = 10_000
"""Clients of one message; a server may allow a node fewer."""

_MAX_NAME = 100
_MAX_REMARK = 200


def node_number(name: str) -> int:
    """Return the number of a node: 64 bits that follow from its name.

    A name that is a number stands for itself, any other for eight bytes of BLAKE2b over it.

    Examples
    --------
    >>> node_number("7"), node_number("07"), node_number("pump-7")
    (7, 3183685370141628796, 13400742587490029158)
    """
    if re.fullmatch("0|[1-9][0-9]{0,19}", name) and int(name) < 1 << 64:
        return int(name)
    return _hashed(name.encode())


def client_number(node: int, client: str) -> int:
    """Return the number of a client: that of its node if it has no name, otherwise BLAKE2b over both.

    Examples
    --------
    >>> client_number(7, ""), client_number(7, "north")
    (7, 9294420281861975368)
    """
    return _hashed(node.to_bytes(8, "big") + client.encode()) if client else node


def _hashed(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def check_client_names(clients: Sequence[Any], *, gateway: bool = False) -> tuple[str, ...]:
    """Return names of clients, or raise ValueError if they are not distinct short lines; a gateway's are not empty."""
    if len(clients) > MAX_CLIENTS:
        raise ValueError(f"{len(clients):,} clients, of at most {MAX_CLIENTS:,}")
    for name in clients:
        if not (is_client_name(name) or (name == "" and not gateway)):
            raise ValueError(f"{clean_text(name)[:40]!r} is not a client's name: {NAME_RULE}")
    if len(set(clients)) != len(clients):
        raise ValueError("a client is named twice")
    return tuple(clients)


NAME_RULE = "1 to 100 printable characters, no spaces around them, letters of one alphabet, no combining marks"


def is_client_name(name: Any) -> bool:
    """Whether a gateway can have a client of this name; see :data:`NAME_RULE`.

    Letters of two alphabets in one name, and characters that are composed of several, would let one name look like
    another.

    Examples
    --------
    >>> is_client_name("north"), is_client_name(" north"), is_client_name("x" * 101), is_client_name("n\u043erth")
    (True, False, False, False)
    """
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or name.strip() != name:
        return False
    alphabets = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    is_plain = unicodedata.normalize("NFKC", name) == name and not any(map(unicodedata.combining, name))
    return name.isprintable() and (name.isascii() or (len(alphabets) <= 1 and is_plain))


def clean_text(text: Any) -> str:
    """Return what somebody else says as one short line that cannot do anything to a terminal."""
    kept = "".join(character for character in str(text)[: 4 * _MAX_REMARK] if character.isprintable())
    return kept[:_MAX_REMARK]
