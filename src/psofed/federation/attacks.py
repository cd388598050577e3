"""Rehearse an attack on one's own federation, with any attack of :mod:`psofed.attacks` or one's own.

There are two ways. A node can lie by itself, with a mod before the sharing::

    @app.train(mods=[rehearse(SignFlip(num_byzantine=1, scale=2.0)), partial_sharing()])

It changes what is uploaded and nothing else: as in the paper, the node's own model stays clean. An attack on data
(``poison``) changes what the node learns from instead: :class:`PoisonedSource`. A node knows its own upload and the
server's entries as it last downloaded them, so attacks that see what others upload are rehearsed at the server:
``PSOFed(rehearsal=Mimic(num_byzantine=2))`` corrupts what the Byzantine nodes have sent once all of it is there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.common.validation import check_integer
from psofed.federation.client import ClientFunction, Mod
from psofed.federation.layout import Vector
from psofed.federation.masks import ATTACK, derive_words
from psofed.federation.run_options import MAX_SEED
from psofed.federation.sources import Position, Samples, Source
from psofed.federation.wire import ARRAYS, FULL, SETTINGS, SYNC, VALUES, decode_instruction
from psofed.parts.base import Aggregation, Attack, PreAggregation
from psofed.parts.plain import check_memory, corrupt_at_best, corrupt_uploads, poison_sample

# From this many corrupted numbers on an attack is worth compiling, which takes a second or two once.
_LARGE = 2_000

# Whose normal numbers all attackers have in common; no node has this number.
_EVERYBODY = 2**64 - 1


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
        n, node = int(str(settings["round"])), int(str(settings["node"]))
        server = known.setdefault(node, np.full(instruction.masks.dimension, np.nan))
        if instruction.values is not None:
            whole = instruction.kind in (FULL, SYNC)
            server[slice(None) if whole else instruction.masks.indices(n, node)] = instruction.values
        indices = instruction.masks.indices(n + 1, node)
        last = np.where(np.isnan(server[indices]), values, server[indices])
        changed = _corrupt(
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

    def read(self, start: Position, limit: int) -> Samples:
        """Read samples, and poison some."""
        samples = self.source.read(start, limit)
        inputs, targets = samples.inputs.copy(), samples.targets.copy()
        for i in range(len(targets)):
            n = start.samples + i
            attacks, normals = _draw(self.attack, self.seed, self.node, n, inputs.shape[1])
            if attacks:
                inputs[i], targets[i] = poison_sample(
                    self.attack, inputs[i], float(targets[i]), normals=normals, client=self.node, iteration=n
                )
        return Samples(inputs, targets, samples.ends, samples.end, samples.problem)


class Rehearsal:
    """An attack on uploads, carried out at the server, where all that an omniscient attacker sees is at hand."""

    def __init__(self, attack: Attack, seed: int) -> None:
        if attack.poisons_samples():
            raise NotCoveredError(
                f'attack.kind = "{attack.kind}" changes what nodes learn from: let them read a PoisonedSource'
            )
        self.attack: Attack = attack
        self.seed: int = seed
        # What an attack keeps from round to round, and which of its numbers is whose; forgotten with the process.
        self._memory, self._numbers = np.zeros(0), dict[str, int]()

    def corrupt(
        self,
        round_number: int,
        model: Vector,
        uploads: Mapping[str, tuple[NDArray[np.int64], Vector]],
        rule: Aggregation | None = None,
        pre: PreAggregation | None = None,
        uniforms: FloatArray | None = None,
    ) -> dict[str, tuple[NDArray[np.int64], Vector]]:
        """Return the uploads (indices, values) by node, those of Byzantine nodes corrupted.

        Attackers that try strengths against the server's rule do so against `rule` and `pre`, with the `uniforms` of
        all nodes in alphabetical order.
        """
        names = sorted(uploads)
        chosen = [str(client) for client in self.attack.clients] or names[: self.attack.num_byzantine]
        numbers = {name: k for k, name in enumerate(names)}
        if self.attack.memory_size(1, 1):
            for name in names:
                self._numbers.setdefault(name, len(self._numbers))
            numbers = self._numbers
            check_memory(self.attack, len(numbers), len(model))
            missing = self.attack.memory_size(len(numbers), len(model)) - self._memory.size
            self._memory = np.concatenate([self._memory, np.zeros(missing)])
        against = None
        if self.attack.strengths() and rule is not None:
            against = {"rule": rule, "pre": pre, "uniforms": uniforms}
        return _corrupt(
            self.attack, self.seed, round_number, numbers, uploads, model, chosen, self._memory, against
        )


def _corrupt(
    attack: Attack,
    seed: int,
    round_number: int,
    numbers: Mapping[str, int],
    uploads: Mapping[str, tuple[NDArray[np.int64], Vector]],
    server: Vector,
    byzantine: list[str],
    memory: FloatArray | None = None,
    against: Mapping[str, Any] | None = None,
) -> dict[str, tuple[NDArray[np.int64], Vector]]:
    """Corrupt uploads; `server` has the numbers of all entries that are uploaded, or of the model's.

    An attack with a `memory` knows entries by their numbers in the model, and needs all of it.
    """
    names = sorted(uploads, key=lambda name: numbers[name])
    entries = (
        np.unique(np.concatenate([uploads[name][0] for name in names])) if names else np.zeros(0, np.int64)
    )
    own = np.asarray(server, dtype=np.float64)
    if memory is not None and memory.size:
        entries = np.arange(own.size)
    own = own if own.size == entries.size else own[entries]
    sent = np.full((len(names), len(entries)), np.nan)
    attacking, normals = np.zeros(len(names), np.bool_), np.zeros_like(sent)
    for p, name in enumerate(names):
        indices, values = uploads[name]
        sent[p, np.searchsorted(entries, indices)] = values
        if name in byzantine:
            attacking[p], normals[p] = _draw(attack, seed, numbers[name], round_number, len(entries))
    corrupt: Callable[..., FloatArray] = corrupt_uploads
    if attacking.sum() * len(entries) >= _LARGE:
        from psofed.engine.corrupt import corrupt_compiled as corrupt
    if against is not None:
        corrupt = partial(corrupt_at_best, **against)
    received = corrupt(
        attack, uploads=sent, attacking=attacking, server=own, clients=np.array([numbers[name] for name in names]),
        iteration=round_number, normals=normals, common_normals=_normals(seed, _EVERYBODY, round_number, len(entries)),
        num_clients=len(numbers), memory=memory,
    )  # fmt: skip
    changed = dict(uploads)
    for p, name in enumerate(names):
        if attacking[p]:
            indices = uploads[name][0]
            changed[name] = indices, received[p, np.searchsorted(entries, indices)]
    return changed


def _draw(attack: Attack, seed: int, node: int, n: int, size: int) -> tuple[bool, FloatArray]:
    generator = np.random.default_rng(derive_words(seed, node, n, ATTACK, 4).tolist())
    return bool(generator.random() < attack.probability), generator.standard_normal(size)


def _normals(seed: int, node: int, n: int, size: int) -> FloatArray:
    return np.random.default_rng(derive_words(seed, node, n, ATTACK, 4).tolist()).standard_normal(size)
