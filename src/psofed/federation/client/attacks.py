"""Rehearse an attack on one's own federation, with any attack of :mod:`psofed.attacks` or one's own.

There are two ways. A node can lie by itself, with a mod before the sharing::

    @app.train(mods=[rehearse(SignFlip(num_byzantine=1, scale=2.0)), partial_sharing()])

It changes what is uploaded and nothing else: as in the paper, the node's own model stays clean. An attack on data
(``poison``) changes what the node learns from instead: :class:`PoisonedSource`. A node knows its own upload and the
server's entries as it last downloaded them, so attacks that see what others upload are rehearsed at the server:
``PSOFed(rehearsal=Mimic(num_byzantine=2))`` corrupts what the Byzantine nodes have sent once all of it is there.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, Message, RecordDict

from psofed.common.errors import NotCoveredError, PsofedError
from psofed.common.types import FloatArray
from psofed.common.validation import check_integer
from psofed.federation.client.sharing import ClientFunction, Mod
from psofed.federation.client.sources import NamedSource, Position, Samples, Source, source_of_run
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.corruption import check_rehearsal, corrupt_by_node, draw_attack
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.run_options import MAX_SEED
from psofed.federation.protocol.wire import ARRAYS, FULL, SETTINGS, SYNC, VALUES, decode_instruction
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
        reply = call_next(message, context)
        content = reply.content
        record = content.get(ARRAYS)
        if not isinstance(record, ArrayRecord) or VALUES not in record:
            return reply  # nothing is uploaded: the client has lost its state
        values = record[VALUES].numpy()
        settings = content.config_records[SETTINGS]
        if "bits" in settings:
            raise PsofedError(
                "a node that rehearses an attack sends its values as they are: leave out the links"
            )
        n, node = int(str(settings["round"])), int(str(settings["node"]))
        server = known.setdefault(node, np.full(instruction.masks.dimension, np.nan))
        if instruction.values is not None:
            whole = instruction.kind in (FULL, SYNC)
            server[slice(None) if whole else instruction.masks.indices(n, node)] = instruction.values
        indices = instruction.masks.indices(n + 1, node)
        last = np.where(np.isnan(server[indices]), values, server[indices])
        changed = corrupt_by_node(
            attack, seed, n, {str(node): node}, {str(node): (indices, values)}, last, [str(node)]
        )
        poisoned = FlowerArray(np.asarray(changed[str(node)][1], dtype=values.dtype))
        reply.content = RecordDict({**content, ARRAYS: ArrayRecord({VALUES: poisoned})})
        return reply

    return mod


def perturbing(perturbation: Perturbation) -> Mod:
    """Return a mod that adds whatever `perturbation` says to the upload.

    Examples
    --------
    >>> flip = perturbing(lambda round_number, node, count: np.full(count, 100.0))
    """

    def mod(message: Message, context: Context, call_next: ClientFunction) -> Message:
        reply = call_next(message, context)
        content = reply.content
        record = content.get(ARRAYS)
        if not isinstance(record, ArrayRecord) or VALUES not in record:
            return reply  # nothing is uploaded: the client has lost its state
        values = record[VALUES].numpy()
        settings = content.config_records[SETTINGS]
        delta = perturbation(int(str(settings["round"])), int(str(settings["node"])), values.size)
        if delta is not None:
            poisoned = FlowerArray(np.asarray(values + delta, dtype=values.dtype))
            reply.content = RecordDict({**content, ARRAYS: ArrayRecord({VALUES: poisoned})})
        return reply

    return mod


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
