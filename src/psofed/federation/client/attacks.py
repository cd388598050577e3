"""Rehearse an attack on one's own federation, with any attack of :mod:`psofed.attacks` or one's own.

There are two ways. A node can lie by itself, with a mod before the sharing::

    @app.train(mods=[rehearse(SignFlip(num_byzantine=1, scale=2.0)), partial_sharing()])

It changes what is uploaded and nothing else: as in the paper, the node's own model stays clean. An attack on data
(``poison``) changes what the node learns from instead: :class:`PoisonedSource`. A node knows its own upload and the
server's entries as it last downloaded them, so attacks that see what others upload are rehearsed at the server:
``PSOFed(rehearsal=Mimic(num_byzantine=2))`` corrupts what the Byzantine nodes have sent once all of it is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, Message, RecordDict

from psofed.common.errors import NotCoveredError, PsofedError
from psofed.common.types import FloatArray
from psofed.common.validation import check_integer
from psofed.federation.client.sharing import ClientFunction, Mod
from psofed.federation.client.sources import NamedSource, Position, Samples, Source, source_of_run
from psofed.federation.protocol.answers import LEARNED
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.corruption import check_rehearsal, corrupt_by_node, draw_attack
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.run_options import MAX_SEED
from psofed.federation.protocol.wire import (
    ARRAYS,
    FULL,
    SETTINGS,
    SYNC,
    VALUES,
    client_number,
    decode_instruction,
)
from psofed.parts.base import Attack
from psofed.parts.plain import poison_sample


class Perturbation(Protocol):
    """Says what a Byzantine node adds to its upload."""

    def __call__(self, round_number: int, node: int, count: int) -> Vector | None:
        """Return δ of shape (`count`,), or None to send the truth."""
        ...


def rehearse(attack: Attack, *, seed: int = 0) -> Mod:
    """Return a mod that makes a node Byzantine.

    Parameters
    ----------
    attack : Attack
        What it does; with its `probability` in each round. That it is one of `num_byzantine` plays no part.
    seed : int
        With node and round it gives the draws, so a repeated round repeats its attack.

    Examples
    --------
    >>> from psofed.attacks import ConstantBias
    >>> mod = rehearse(ConstantBias(num_byzantine=1, bias=0.5))
    """
    check_integer("seed", seed, 0, MAX_SEED)
    if attack.poisons_samples():
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" changes what a node learns from: use a PoisonedSource'
        )
    check_rehearsal(attack)
    if attack.knows not in ("upload", "server"):
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" sees what other nodes upload, which no node does: '
            "rehearse it at the server, PSOFed(rehearsal=…)"
        )
    known: dict[int, FloatArray] = {}

    def mod(message: Message, context: Context, call_next: ClientFunction) -> Message:
        instruction = decode_instruction(message.content)
        tasks = {client_number(instruction.node, task.client): task for task in instruction.tasks}

        def lie(n: int, client: int, values: Vector) -> Vector:
            task = tasks[client]
            server = known.setdefault(client, np.full(instruction.masks.dimension, np.nan))
            if task.values is not None:
                whole = task.kind in (FULL, SYNC)
                server[slice(None) if whole else instruction.masks.indices(n, client)] = task.values
            indices = instruction.masks.indices(n + 1, client)
            last = np.where(np.isnan(server[indices]), values, server[indices])
            name = str(client)
            changed = corrupt_by_node(
                attack, seed, n, {name: client}, {name: (indices, values)}, last, [name]
            )
            return changed[name][1]

        return change_uploads(call_next(message, context), lie)

    return mod


def perturbing(perturbation: Perturbation) -> Mod:
    """Return a mod that adds whatever `perturbation` says to the upload.

    Examples
    --------
    >>> flip = perturbing(lambda round_number, node, count: np.full(count, 100.0))
    """

    def mod(message: Message, context: Context, call_next: ClientFunction) -> Message:
        def add(n: int, client: int, values: Vector) -> Vector:
            delta = perturbation(n, client, values.size)
            return values if delta is None else values + delta

        return change_uploads(call_next(message, context), add)

    return mod


def change_uploads(reply: Message, change: Callable[[int, int, Vector], Vector]) -> Message:
    """Return a node's reply with the uploads of its clients changed.

    Parameters
    ----------
    change : callable
        Given the round, a client's number and its values, returns what is sent instead.
    """
    content = reply.content
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord) or VALUES not in record:
        return reply  # nothing is uploaded: the clients have lost their state
    settings: Any = content.config_records[SETTINGS]
    if "bits" in settings:
        raise PsofedError("a node that rehearses an attack sends its values as they are: leave out the links")
    node, n = int(settings["node"]), int(settings["round"])
    said = zip(settings["clients"], settings["statuses"], strict=True)
    numbers = [client_number(node, client) for client, status in said if status == LEARNED]
    rows = record[VALUES].numpy().reshape(len(numbers), -1)
    changed = [change(n, number, row) for number, row in zip(numbers, rows, strict=True)]
    values = FlowerArray(np.concatenate(changed).astype(rows.dtype))
    reply.content = RecordDict({**content, ARRAYS: ArrayRecord({VALUES: values})})
    return reply


@dataclass(frozen=True)
class PoisonedSource:
    """A source whose samples are poisoned, each with the attack's probability; the same whenever it is read.

    Parameters
    ----------
    source : Source
        The clean samples.
    attack : Attack
        An attack on data.
    node, seed : int
        With the sample's number they give the draws.
    """

    source: Source
    attack: Attack
    node: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_rehearsal(self.attack)

    def columns(self) -> ColumnNames | None:
        """Return the names of the clean source's columns."""
        return self.source.columns() if isinstance(self.source, NamedSource) else None

    def choose(self, columns: ColumnNames) -> "PoisonedSource":
        """Return the same source with the run's columns."""
        return replace(self, source=source_of_run(self.source, columns))

    def read(self, start: Position, limit: int) -> Samples:
        """Read samples, and poison some."""
        samples = self.source.read(start, limit)
        inputs, targets = samples.inputs.copy(), samples.targets.copy()
        for i in range(len(targets)):
            n = start.samples + i
            attacks, normals = draw_attack(self.attack, self.seed, self.node, n, inputs.shape[1])
            if attacks:
                inputs[i], targets[i] = poison_sample(
                    self.attack, inputs[i], float(targets[i]), normals=normals, client=self.node, iteration=n
                )
        return Samples(inputs, targets, samples.ends, samples.end, samples.problem)
