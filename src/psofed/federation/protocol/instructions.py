"""Instructions: what the server asks of a node, for those of its clients that take part in a round.

One frame goes to a node per round, whatever the number of its clients. Decoding trusts nothing: whatever arrives is
either an :class:`Instruction` or a ValueError that says what is wrong with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psofed.federation.protocol import frames
from psofed.federation.protocol.bounds import MAX_ENTRIES, MAX_ROUND, MAX_SEED
from psofed.federation.protocol.frames import INSTRUCTION, Fields, FrameError, decode_frame, read_values
from psofed.federation.protocol.layout import ModelLayout, Vector
from psofed.federation.protocol.masks import DERIVATION, DerivedMasks, derived_masks
from psofed.federation.protocol.names import check_client_names

PART = "part"  # values hold the M entries of S_{k,n}
START = "start"  # likewise, for a client that starts from zero, as the paper's do
FULL = "full"  # values hold all D entries
SYNC = "sync"  # likewise, and the client takes them all, whatever it had
KINDS = (PART, START, FULL, SYNC)

_MAX_SESSION, _MAX_NODE, _MAX_SETTINGS = 64, 200, 100


@dataclass(frozen=True, slots=True)
class ClientTask:
    """The part of an instruction that concerns one client.

    Attributes
    ----------
    client : str
        Its name at the node; empty for the one client of a node that is not a gateway.
    kind : str
        One of :data:`KINDS`.
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


@dataclass(frozen=True, slots=True)
class Instruction:
    """From the server to a node.

    Attributes
    ----------
    session : str
        Names the run across restarts of the server.
    epoch : int
        How often the run was rolled back; see :class:`psofed.federation.server.checkpoint.ServerState`.
    round_number : int
        n, from 1.
    sequence : int
        Differs for every instruction; the reply repeats it.
    node : str
        The name of the node, from which its clients' numbers follow.
    masks : DerivedMasks
        Seed, D, M and pattern, from which each client derives S_{k,n} and S_{k,n+1}.
    digest : str
        Of the model's layout, the names of its columns included.
    tasks : tuple of ClientTask
        What each client is to do.
    layout : ModelLayout or None
        The layout itself, if one of the clients may not know it.
    refused : tuple of str
        Clients that the node has named and the server does not accept.
    config : mapping
        Texts, numbers and flags for the training function.
    """

    session: str
    round_number: int
    node: str
    masks: DerivedMasks
    digest: str
    tasks: tuple[ClientTask, ...]
    epoch: int = 0
    sequence: int = 0
    layout: ModelLayout | None = None
    refused: tuple[str, ...] = ()
    config: Mapping[str, str | int | float | bool] = field(default_factory=dict)


def encode_instruction(instruction: Instruction) -> bytes:
    """Return the frame of an instruction; values that several clients get travel once."""
    masks, tasks = instruction.masks, instruction.tasks
    header: dict[str, Any] = {
        "session": instruction.session,
        "epoch": instruction.epoch,
        "round": instruction.round_number,
        "node": instruction.node,
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
        header["layout"] = instruction.layout.to_text()
    if instruction.refused:
        header["refused"] = list(instruction.refused)
    if instruction.config:
        header["config"] = dict(instruction.config)
    valued = [(task.kind in (FULL, SYNC), task.values) for task in tasks if task.values is not None]
    whole, parts = ([values for is_whole, values in valued if is_whole is kind] for kind in (True, False))
    if len(parts) > 1 and all(part is parts[0] for part in parts):
        header["common"] = True
        parts = parts[:1]
    blocks = [*whole[:1], *parts]
    if blocks:
        header["dtype"] = str(blocks[0].dtype)
    return frames.encode_frame(INSTRUCTION, instruction.sequence, header, blocks)


def decode_instruction(data: bytes, max_entries: int = MAX_ENTRIES) -> Instruction:
    """Read an instruction; ValueError says what is wrong with it.

    Nothing is allocated for a model of more than `max_entries` entries, shared or not.
    """
    sequence, fields, body = decode_frame(data, INSTRUCTION)
    if fields.get("derivation") != DERIVATION:
        version = fields.get("derivation")
        raise FrameError(f"masks derived by version {version!r}, this psofed derives by {DERIVATION}")
    masks = derived_masks(
        fields.integer("seed", 0, MAX_SEED),
        fields.integer("dimension", 1, max_entries),
        fields.integer("shared", 1, max_entries),
        fields.text("pattern", 40),
        fields.flag("coordinated"),
    )
    layout = ModelLayout.from_text(fields.text("layout")) if "layout" in fields else None
    if layout is not None and layout.entries > max_entries:
        raise FrameError(f"the server's model has {layout.entries:,} entries; this client takes {max_entries:,}")
    return Instruction(
        session=fields.text("session", _MAX_SESSION),
        epoch=fields.integer("epoch", 0, MAX_ROUND),
        round_number=fields.integer("round", 1, MAX_ROUND),
        sequence=sequence,
        node=fields.text("node", _MAX_NODE),
        masks=masks,
        digest=fields.text("digest", _MAX_SESSION),
        layout=layout,
        refused=check_client_names(fields.items_of("refused", str)),
        config=_decode_config(fields),
        tasks=_decode_tasks(fields, body, masks),
    )


def _decode_tasks(fields: Fields, body: memoryview, masks: DerivedMasks) -> tuple[ClientTask, ...]:
    clients = check_client_names(fields.items_of("clients", str))
    kinds: Sequence[str] = fields.items_of("kinds", str, len(clients))
    expected: Sequence[int] = fields.items_of("expected", int, len(clients))
    if not clients or not {*kinds} <= {*KINDS} or not 0 <= min(expected) <= max(expected) <= MAX_ROUND:
        raise FrameError("no client, an unknown kind of task, or a round that is out of range")
    size, shared, common = masks.dimension, masks.num_shared, fields.flag("common")
    has_whole = FULL in kinds or SYNC in kinds
    parts = kinds.count(PART) + kinds.count(START)
    length = size * has_whole + shared * (min(parts, 1) if common else parts)
    values = read_values(body, length, fields.dtype() if length else np.dtype(np.float64))
    at, tasks = size * has_whole, []
    for client, kind, last in zip(clients, kinds, expected, strict=True):
        if kind in (FULL, SYNC):
            tasks.append(ClientTask(client, kind, last, values[:size]))
        else:
            tasks.append(ClientTask(client, kind, last, values[at : at + shared]))
            at += 0 if common else shared
    return tuple(tasks)


def _decode_config(fields: Fields) -> dict[str, str | int | float | bool]:
    config = fields.get("config", {})
    if type(config) is not dict or len(config) > _MAX_SETTINGS:
        raise FrameError("config is not an object, or too large")
    if any(type(value) not in (str, int, float, bool) for value in config.values()):
        raise FrameError("config holds something else than texts, numbers and flags")
    return config
