"""Corrupting a node's own uploads as an attack does, with draws that node and round determine."""

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.federation.protocol.masks import ATTACK, derive_words
from psofed.parts.base import Attack

EVERYBODY = 2**64 - 1
"""Whose normal numbers all attackers have in common; no node has this number."""


def check_rehearsal(attack: Attack) -> None:
    """Refuse attacks that a node by itself cannot carry out."""
    if attack.memory_size(1) or attack.defines("remember"):
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" keeps a memory for each client, which a node does not; simulate it'
        )
    if attack.defines("poison"):
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" changes what a client learns from; a node rehearses attacks on uploads: '
            "simulate it, or poison the table"
        )
    if attack.knows not in ("upload", "server"):
        raise NotCoveredError(
            f'attack.kind = "{attack.kind}" sees what other nodes upload, which no node does; simulate it'
        )


def draw_attack(attack: Attack, seed: int, node: int, n: int, size: int) -> tuple[bool, FloatArray]:
    """Return whether `node` attacks in round `n`, and its standard normal numbers."""
    generator = _generator(seed, node, n)
    return bool(generator.random() < attack.probability), generator.standard_normal(size)


def draw_normals(seed: int, node: int, n: int, size: int) -> FloatArray:
    """Return the standard normal numbers of `node` in round `n`."""
    return _generator(seed, node, n).standard_normal(size)


def _generator(seed: int, node: int, n: int) -> np.random.Generator:
    return np.random.default_rng(derive_words(seed, node, n, ATTACK, 4).tolist())
