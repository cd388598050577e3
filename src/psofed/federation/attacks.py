"""Rehearse an attack on one's own federation: client mods that make a node Byzantine.

Put the attack before the sharing: ``@app.train(mods=[gaussian(probability=0.2, variance=0.5),
partial_sharing()])``. It changes what is uploaded and nothing else: as in the paper, the node's own model
stays clean. Unlike the simulator's attacks these run on real nodes, so they must be asked for there.
"""

from typing import Protocol

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, Message, RecordDict

from psofed.common.validation import check_integer, check_number
from psofed.federation.client import ClientFunction, Mod
from psofed.federation.layout import Vector
from psofed.federation.masks import ATTACK, MAX_SEED, derive_words
from psofed.federation.wire import ARRAYS, SETTINGS, VALUES


class Perturbation(Protocol):
    """Says what a Byzantine node adds to its upload."""

    def __call__(self, round_number: int, node: int, count: int) -> Vector | None:
        """Return δ of shape (`count`,), or None to send the truth."""
        ...


def gaussian(*, probability: float = 0.2, variance: float = 0.5, seed: int = 0) -> Mod:
    """Return a mod that adds N(0, σ_B² I) to the upload, with probability p_a in each round.

    Parameters
    ----------
    probability : float
        p_a.
    variance : float
        σ_B².
    seed : int
        With the node and the round it gives the draw, so a repeated round repeats its attack.

    Examples
    --------
    >>> attack = gaussian(probability=0.2, variance=0.5)
    """
    check_number("probability", probability, 0, 1)
    check_number("variance", variance, 0)
    check_integer("seed", seed, 0, MAX_SEED)

    def draw(round_number: int, node: int, count: int) -> Vector | None:
        generator = np.random.default_rng(derive_words(seed, node, round_number, ATTACK, 4).tolist())
        if generator.random() >= probability:
            return None
        return np.asarray(np.sqrt(variance) * generator.standard_normal(count))

    return perturbing(draw)


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
