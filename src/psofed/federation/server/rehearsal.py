"""An attack on one's own federation, rehearsed at the server; see :mod:`psofed.federation.client.attacks`."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.federation.protocol.corruption import check_rehearsal, corrupt_by_node
from psofed.federation.protocol.layout import Vector
from psofed.parts.base import Attack
from psofed.parts.plain import check_memory


class Rehearsal:
    """An attack on uploads, carried out at the server, where all that an omniscient attacker sees is at hand."""

    def __init__(self, attack: Attack, seed: int) -> None:
        if attack.poisons_samples():
            raise NotCoveredError(
                f'attack.kind = "{attack.kind}" changes what nodes learn from: let them read a PoisonedSource'
            )
        check_rehearsal(attack)
        self.attack: Attack = attack
        self.seed: int = seed
        # What an attack keeps from round to round, and which of its numbers is whose; forgotten with the process.
        self._memory, self._numbers = np.zeros(0), dict[str, int]()

    def corrupt(
        self,
        round_number: int,
        model: Vector,
        uploads: Mapping[str, tuple[NDArray[np.int64], Vector]],
    ) -> dict[str, tuple[NDArray[np.int64], Vector]]:
        """Return the uploads (indices, values) by node, those of Byzantine nodes corrupted."""
        names = sorted(uploads)
        chosen = [str(client) for client in self.attack.clients] or names[: self.attack.num_byzantine]
        numbers = {name: k for k, name in enumerate(names)}
        if self.attack.group_memory_size(1, 1):
            for name in names:
                self._numbers.setdefault(name, len(self._numbers))
            numbers = self._numbers
            check_memory(self.attack, len(numbers), len(model))
            missing = self.attack.group_memory_size(len(numbers), len(model)) - self._memory.size
            self._memory = np.concatenate([self._memory, np.zeros(missing)])
        return corrupt_by_node(
            self.attack, self.seed, round_number, numbers, uploads, model, chosen, self._memory
        )
