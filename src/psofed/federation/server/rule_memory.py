"""The memory of a rule that looks further back than one round."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from psofed.federation.protocol.layout import Vector


@dataclass(eq=False)
class RememberedUpdates:
    """Memory that a rule keeps of each client: a row of D numbers, zeros at first, by name.

    Examples
    --------
    >>> memory = RememberedUpdates()
    >>> memory.rows(["pump-1", "pump-2"], 3), memory.rows(["pump-2", "pump-3"], 3), memory.values.shape
    (array([0, 1]), array([1, 2]), (3, 3))
    """

    names: list[str] = field(default_factory=list)
    values: Vector = field(default_factory=lambda: np.zeros((0, 0)))

    def rows(self, names: list[str], size: int) -> NDArray[np.int64]:
        """Return the rows of these clients, after adding those that are new."""
        known = {name: row for row, name in enumerate(self.names)}
        for name in names:
            known.setdefault(name, len(known))
        new = np.zeros((len(known) - len(self.names), size))
        self.values = np.concatenate([self.values.reshape(-1, size), new])
        self.names = list(known)
        return np.array([known[name] for name in names])
