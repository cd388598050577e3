"""Content of messages: instructions from the server to a node, and what both directions have in common.

A *client* is a name at a node: a gateway works for many clients, any other node for one without a name. One message
goes to a node per round, whatever the number of its clients that take part, and one comes back
(:mod:`psofed.federation.protocol.answers`).

A message is one record of settings named ``psofed`` and one array named ``values``: each further array would cost
Flower several requests. Decoding trusts nothing: whatever arrives is either a value of the types below or
an error that says what is wrong with it.
"""

import hashlib
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from psofed.federation.flower import fill, plain
from psofed.federation.protocol.bounds import MAX_ENTRIES, MAX_ROUND
from psofed.federation.protocol.layout import ModelLayout, Vector
from psofed.federation.protocol.masks import DERIVATION, DerivedMasks, derived_masks
from psofed.federation.protocol.npy import array_of, npy_header

FORMAT = 3
"""Version of the wire format."""

ARRAYS, SETTINGS, CONFIG = "arrays", "psofed", "config"
VALUES = "values"

PART = "part"  # values hold the M entries of S_{k,n}
START = "start"  # likewise, for a client that starts from zero, as the paper's do
FULL = "full"  # values hold all D entries
SYNC = "sync"  # likewise, and the client takes them all, whatever it had
EVALUATE = "evaluate"  # no values: the client evaluates its own model
DESCRIBE = "describe"  # no values: the node names the columns of its data and its clients, and learns nothing
KINDS = (PART, START, FULL, SYNC, EVALUATE, DESCRIBE)

MAX_CLIENTS = 10_000
"""Clients of one message; a server may allow a node fewer."""

_MAX_CLIENT_NAME = 100
_NPY_HEADER_LIMIT = 1024
_MAX_REMARK = 200


class BadReplyError(ValueError):
    """A reply that must be dropped.

    Parameters
    ----------
    kind : str
        One of :data:`psofed.federation.server.checks.KINDS`.
    detail : str
        What was wrong; a client's own words may be in it, so it is cut to one short line.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        detail = clean_text(detail)
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


class ClientTask(NamedTuple):
    """The part of an instruction that concerns one client.

    Attributes
    ----------
    client : str
        Its name at the node; empty for the one client of a node that is not a gateway.
    kind : str
        :data:`PART`, :data:`START`, :data:`FULL`, :data:`SYNC`, :data:`EVALUATE` or :data:`DESCRIBE`.
    expected : int
        The last round the server has accepted from this client, 0 if none. A client whose own state is
        older has lost it.
    values : array (M,) or (D,) or None
        See `kind`.
    """

    client: str
    kind: str
    expected: int = 0
    values: Vector | None = None


class Instruction(NamedTuple):
    """From the server to a node, for those of its clients that take part.

    Attributes
    ----------
    session : str
        Names the federation across restarts of the server (Flower's run id does not).
    round_number : int
        n, from 1.
    node : int
        The number of the node's key, from which its clients' numbers follow (:func:`client_number`).
    masks : DerivedMasks
        Seed, D, M and pattern, from which each client derives S_{k,n} and S_{k,n+1}.
    digest : str
        Of the model's layout, the names of its columns included.
    tasks : tuple of ClientTask
        What each client is to do.
    epoch : int
        See :class:`psofed.federation.server.checkpoint.ServerState`.
    layout : ModelLayout or None
        The layout itself, if one of the clients may not know it.
    roster : str
        Digest of the clients that the server takes this node to have (:func:`roster_digest`).
    refused : tuple of str
        Clients that the node has named and the server does not accept.
    """

    session: str
    round_number: int
    node: int
    masks: DerivedMasks
    digest: str
    tasks: tuple[ClientTask, ...]
    epoch: int = 0
    layout: ModelLayout | None = None
    roster: str = ""
    refused: tuple[str, ...] = ()


def client_number(node: int, client: str) -> int:
    """Return the number by which a client's masks and its participation are drawn: 64 bits.

    That of the node for a client without a name, otherwise eight bytes of BLAKE2b over the node's number and the name.

    Examples
    --------
    >>> client_number(7, ""), client_number(7, "north")
    (7, 9294420281861975368)
    """
    if not client:
        return node
    return int.from_bytes(
        hashlib.blake2b(node.to_bytes(8, "big") + client.encode(), digest_size=8).digest(), "big"
    )


def roster_digest(clients: Iterable[str]) -> str:
    """Return eight bytes of BLAKE2b over a gateway's clients; empty if the node is not a gateway."""
    names = sorted(clients)
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest() if names else ""


def check_client_names(clients: Sequence[Any], gateway: bool = False) -> tuple[str, ...]:
    """Return names of clients, or raise ValueError if they are not distinct short lines of printable characters.

    Only a gateway's clients must have names.
    """
    if len(clients) > MAX_CLIENTS:
        raise ValueError(f"{len(clients):,} clients, of at most {MAX_CLIENTS:,}")
    for name in clients:
        if not (is_client_name(name) if gateway else _is_short_line(name)):
            raise ValueError(f"{str(name)[:40]!r} is no name of a client")
    if len(set(clients)) != len(clients):
        raise ValueError("a client is named twice")
    return tuple(clients)


def is_client_name(name: Any) -> bool:
    """Whether a gateway can have a client of this name.

    Examples
    --------
    >>> is_client_name("north"), is_client_name(" north"), is_client_name("x" * 101)
    (True, False, False)
    """
    return _is_short_line(name) and name != "" and name.strip() == name


def _is_short_line(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= _MAX_CLIENT_NAME and text.isprintable()


def encode_instruction(
    instruction: Instruction, config: ConfigRecord | None = None, encode: Callable[[Vector], Array] = array_of
) -> RecordDict:
    """Return the message content; `config` goes to the user's training function unchanged."""
    masks, tasks = instruction.masks, instruction.tasks
    settings: dict[str, Any] = {
        "format": FORMAT,
        "session": instruction.session,
        "round": instruction.round_number,
        "epoch": instruction.epoch,
        "node": str(instruction.node),  # 64 bits without a sign, which Flower's integers have not
        "clients": [task.client for task in tasks],
        "kinds": [task.kind for task in tasks],
        "expected": [task.expected for task in tasks],
        "seed": masks.seed,
        "dimension": masks.dimension,
        "shared": masks.num_shared,
        "pattern": masks.pattern,
        "coordinated": masks.coordinated,
        "derivation": masks.derivation,
        "digest": instruction.digest,
    }
    if instruction.layout is not None:
        settings["layout"] = instruction.layout.to_text()
    if instruction.roster:
        settings["roster"] = instruction.roster
    if instruction.refused:
        settings["refused"] = list(instruction.refused)
    records: dict[str, Any] = {SETTINGS: fill(ConfigRecord, settings)}
    whole = [task.values for task in tasks if task.kind in (FULL, SYNC) and task.values is not None]
    parts = [task.values for task in tasks if task.kind in (PART, START) and task.values is not None]
    if len(parts) > 1 and all(part is parts[0] for part in parts):
        plain(records[SETTINGS])["common"] = True
        parts = parts[:1]
    if blocks := [*whole[:1], *parts]:
        values = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        records[ARRAYS] = fill(ArrayRecord, {VALUES: encode(values)})
    if config:
        records[CONFIG] = config
    return fill(RecordDict, records)


def decode_instruction(content: RecordDict, max_entries: int = MAX_ENTRIES) -> Instruction:
    """Read an instruction; ValueError says what is wrong with it.

    Nothing is allocated for a model of more than `max_entries` entries, shared or not.
    """
    record = plain(content).get(SETTINGS)
    if not isinstance(record, ConfigRecord):
        raise ValueError("the message is not from psofed's strategy: it has no settings record")
    settings = plain(record)
    if settings.get("format") != FORMAT:
        spoken = settings.get("format")
        raise ValueError(f"the server speaks format {spoken!r}, this psofed {FORMAT}: update the older one")
    if settings.get("derivation") != DERIVATION:
        version = settings.get("derivation")
        raise ValueError(f"the server derives masks by version {version!r}, this psofed by {DERIVATION}")
    masks = derived_masks(
        integer_of(settings, "seed"),
        integer_of(settings, "dimension"),
        integer_of(settings, "shared"),
        text_of(settings, "pattern"),
        settings.get("coordinated") is True,
    )
    layout = ModelLayout.from_text(text_of(settings, "layout")) if "layout" in settings else None
    entries = max(masks.dimension, 0 if layout is None else layout.entries)
    if entries > max_entries:
        raise ValueError(
            f"the server's model has {entries:,} entries; this client takes at most {max_entries:,}"
        )
    return Instruction(
        session=text_of(settings, "session"),
        round_number=integer_of(settings, "round", 1, MAX_ROUND),
        epoch=integer_of(settings, "epoch", 0, MAX_ROUND),
        node=number_of(settings, "node"),
        masks=masks,
        digest=text_of(settings, "digest"),
        layout=layout,
        roster=text_of(settings, "roster") if "roster" in settings else "",
        refused=check_client_names(list_of(settings, "refused", str)) if "refused" in settings else (),
        tasks=_decode_tasks(content, settings, masks),
    )


def _decode_tasks(
    content: RecordDict, settings: Mapping[str, Any], masks: DerivedMasks
) -> tuple[ClientTask, ...]:
    """Return the clients' tasks; values that several of them get are sent once."""
    clients = check_client_names(list_of(settings, "clients", str))
    kinds = list_of(settings, "kinds", str, len(clients))
    expected = list_of(settings, "expected", int, len(clients))
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is not one of {', '.join(KINDS)}")
    if not clients or not 0 <= min(expected) <= max(expected) <= MAX_ROUND:
        raise ValueError("the message names no client, or a round that is out of range")
    size, shared, common = masks.dimension, masks.num_shared, settings.get("common") is True
    has_whole = FULL in kinds or SYNC in kinds
    parts = kinds.count(PART) + kinds.count(START)
    length = size * has_whole + shared * (min(parts, 1) if common else parts)
    values = np.zeros(0)
    if length:
        record = plain(content).get(ARRAYS)
        if not isinstance(record, ArrayRecord) or list(record) != [VALUES]:
            raise ValueError("the message has no values")
        array = record[VALUES]
        values = decode_array(array, length, np.dtype(array.dtype))
    at, tasks = size * has_whole, []
    for client, kind, number in zip(clients, kinds, expected, strict=True):
        own: Vector | None = None
        if kind in (FULL, SYNC):
            own = values[:size]
        elif kind in (PART, START):
            own = values[at : at + shared]
            at += 0 if common else shared
        tasks.append(ClientTask(client, kind, number, own))
    return tuple(tasks)


def clean_text(text: Any) -> str:
    """Return what a client says as one short line that cannot do anything to a terminal."""
    kept = "".join(character for character in str(text)[: 4 * _MAX_REMARK] if character.isprintable())
    return kept[:_MAX_REMARK]


def decode_array(array: Array, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the one-dimensional array of `length` values of `dtype` that `array` must hold.

    The header is read and compared before any memory is taken, so that neither a claimed size of a
    petabyte nor a pickle gets anywhere.
    """
    data = array.data
    if not isinstance(data, bytes):
        raise BadReplyError("malformed", "no bytes")
    header = npy_header(dtype, (length,))
    if data.startswith(header) and len(data) == len(header) + length * dtype.itemsize:
        return np.frombuffer(data, dtype=dtype, count=length, offset=len(header))
    stream = io.BytesIO(data[:_NPY_HEADER_LIMIT])
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise BadReplyError("malformed", "not a NumPy array of format 1.0")
        shape, _, found = np.lib.format.read_array_header_1_0(stream, max_header_size=_NPY_HEADER_LIMIT)
    except BadReplyError:
        raise
    except Exception as error:
        # NumPy's reader raises whatever its parser stumbles over.
        raise BadReplyError("malformed", f"unreadable array: {type(error).__name__}") from None
    if found != dtype:
        raise BadReplyError("wrong-dtype", f"{found} for {dtype}")
    body = len(data) - stream.tell()
    if shape != (length,) or body != length * dtype.itemsize:
        raise BadReplyError("wrong-length", f"shape {shape}, {body} bytes, for {length} values")
    return np.frombuffer(data, dtype=dtype, count=length, offset=stream.tell())


def integer_of(settings: Mapping[str, Any], name: str, low: float = -math.inf, high: float = math.inf) -> int:
    """Return a whole number of a record, or raise ValueError."""
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is not a whole number")
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}, not between {low} and {high}")
    return value


def number_of(settings: Mapping[str, Any], name: str) -> int:
    """Return a number of 64 bits without a sign, which travels as text, or raise ValueError."""
    text = text_of(settings, name)
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) >= 1 << 64:
        raise ValueError(f"{name} is not a number of 64 bits")
    return int(text)


def text_of(settings: Mapping[str, Any], name: str) -> str:
    """Return a text of a record, or raise ValueError."""
    value = settings.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    return value


def list_of(settings: Mapping[str, Any], name: str, kind: type, length: int | None = None) -> list[Any]:
    """Return a list of a record, of `length` entries if that is given, or raise ValueError."""
    value = settings.get(name)
    if not isinstance(value, list) or {*map(type, value)} - {kind}:
        raise ValueError(f"{name} is not a list of {kind.__name__}")
    if len(value) > MAX_CLIENTS or (length is not None and len(value) != length):
        raise ValueError(f"{name} has {len(value)} entries, not {length}")
    return value
