"""The memory of a rule that looks further back than one round."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from psofed.federation.protocol.layout import Vector
from psofed.parts.base import Aggregation

# Every checkpoint holds the memory: at 8 bytes a number, 8 MB.
MOST_REMEMBERED = 1_000_000


@dataclass(eq=False)
class RuleMemory:
    """The array of a rule with memory, for clients that join later: numbered by name, it grows at its end.

    Examples
    --------
    >>> from psofed.aggregations import RememberedClipping
    >>> rule, memory = RememberedClipping(), RuleMemory()
    >>> memory.rows(rule, ["pump-1", "pump-2"], 3), memory.rows(rule, ["pump-2", "pump-3"], 3), memory.values.size
    (array([0, 1]), array([1, 2]), 9)
    """

    names: list[str] = field(default_factory=list)
    values: Vector = field(default_factory=lambda: np.zeros(0))

    def rows(self, rule: Aggregation, names: list[str], size: int) -> NDArray[np.int64]:
        """Return the numbers of these clients, after adding those that are new, for a model of `size` entries."""
        known = {name: row for row, name in enumerate(self.names)}
        for name in names:
            known.setdefault(name, len(known))
        self.names = list(known)
        needed = rule.memory_size(len(known), size)
        if needed > MOST_REMEMBERED:
            self.values = np.zeros(0)
        elif needed > self.values.size:
            self.values = np.concatenate([self.values, np.zeros(needed - self.values.size)])
        return np.array([known[name] for name in names])

    def fits(self, rule: Aggregation, size: int) -> bool:
        """Whether the memory of all clients is within the limit; once it is not, it never is again."""
        return rule.memory_size(len(self.names), size) <= MOST_REMEMBERED
