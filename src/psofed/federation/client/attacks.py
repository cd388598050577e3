"""Rehearse an attack on one's own federation, with any attack of :mod:`psofed.attacks` or one's own.

A Byzantine node changes what it uploads and nothing else: as in the paper, its own model stays clean. It knows its own
upload and the server's entries as it last downloaded them. An attack on data (``poison``) changes what the node learns
from instead: :class:`PoisonedSource`.
"""

from dataclasses import dataclass, field

import numpy as np

from psofed.common.types import FloatArray
from psofed.federation.protocol.corruption import check_rehearsal, corrupt_upload
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.messages import FULL, SYNC, ClientTask, Instruction
from psofed.federation.protocol.names import client_number, node_number
from psofed.parts.base import Attack


@dataclass(frozen=True)
class Rehearsal:
    """Makes a node Byzantine; see :class:`psofed.federation.client.gateway.Gateway`.

    Parameters
    ----------
    attack : Attack
        What it does; with its `probability` in each round. That it is one of `num_byzantine` plays no part.
    seed : int
        With client and round it gives the draws, so a repeated round repeats its attack.

    Examples
    --------
    >>> from psofed.attacks import ConstantBias
    >>> corruption = Rehearsal(ConstantBias(num_byzantine=1, bias=0.5))
    """

    attack: Attack
    seed: int = 0
    _known: dict[int, FloatArray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_rehearsal(self.attack)

    def __call__(self, instruction: Instruction, task: ClientTask, values: Vector) -> Vector:
        """Return what is uploaded instead of `values`."""
        n, masks = instruction.round_number, instruction.masks
        client = client_number(node_number(instruction.node), task.client)
        server = self._known.setdefault(client, np.full(masks.dimension, np.nan))
        if task.values is not None:
            whole = task.kind in (FULL, SYNC)
            server[slice(None) if whole else masks.indices(n, client)] = task.values
        indices = masks.indices(n + 1, client)
        last = np.where(np.isnan(server[indices]), values, server[indices])
        return corrupt_upload(self.attack, self.seed, n, client, values, last)
