"""Corrupting uploads as an attack does, at a node or at the server, with draws that node and round determine."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import ATTACK, derive_words
from psofed.parts.base import Attack
from psofed.parts.plain import corrupt_uploads

# From this many corrupted numbers on an attack is worth compiling, which takes a second or two once.
_LARGE = 2_000

# Whose normal numbers all attackers have in common; no node has this number.
_EVERYBODY = 2**64 - 1


def corrupt_by_node(
    attack: Attack,
    seed: int,
    round_number: int,
    numbers: Mapping[str, int],
    uploads: Mapping[str, tuple[NDArray[np.int64], Vector]],
    server: Vector,
    byzantine: list[str],
    memory: FloatArray | None = None,
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
            attacking[p], normals[p] = draw_attack(attack, seed, numbers[name], round_number, len(entries))
    corrupt: Callable[..., FloatArray] = corrupt_uploads
    if attacking.sum() * len(entries) >= _LARGE:
        from psofed.engine.attacks import corrupt_compiled as corrupt
    received = corrupt(
        attack, uploads=sent, attacking=attacking, server=own, clients=np.array([numbers[name] for name in names]),
        iteration=round_number, normals=normals, num_clients=len(numbers), memory=memory,
        group=np.sort([numbers[name] for name in byzantine if name in numbers]),
        common_normals=draw_normals(seed, _EVERYBODY, round_number, len(entries)),
    )  # fmt: skip
    changed = dict(uploads)
    for p, name in enumerate(names):
        if attacking[p]:
            indices = uploads[name][0]
            changed[name] = indices, received[p, np.searchsorted(entries, indices)]
    return changed


def check_rehearsal(attack: Attack) -> None:
    """Refuse attacks that keep a memory for each client, which a rehearsal does not."""
    if attack.memory_size(1) or attack.remembers_models():
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" keeps a memory for each client, which rehearsals do not; simulate it'
        )


def draw_attack(attack: Attack, seed: int, node: int, n: int, size: int) -> tuple[bool, FloatArray]:
    """Return whether `node` attacks in round `n`, and its standard normal numbers."""
    generator = np.random.default_rng(derive_words(seed, node, n, ATTACK, 4).tolist())
    return bool(generator.random() < attack.probability), generator.standard_normal(size)


def draw_normals(seed: int, node: int, n: int, size: int) -> FloatArray:
    """Return the standard normal numbers of `node` in round `n`."""
    return np.random.default_rng(derive_words(seed, node, n, ATTACK, 4).tolist()).standard_normal(size)
