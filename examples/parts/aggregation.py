"""Two aggregation rules: one entry by entry, one on whole updates."""

# ruff: noqa: D102  (the base class documents these methods)
import numpy as np

from psofed.parts import Aggregation, option


class Midrange(Aggregation):
    """Moves each entry towards the middle between the lowest and the highest number sent."""

    over = "entries"

    def combine(self, numbers):
        return 0.5 * (np.min(numbers.values) + np.max(numbers.values))


class Shortest(Aggregation):
    """Averages the shortest updates, a given share of them."""

    over = "vectors"

    share: float = option(default=0.5, low=0.0, high=1.0, open_low=True, text="fraction of the updates that count")

    def combine(self, updates):
        lengths = np.sum(updates.changes**2, axis=1)
        kept = max(1, int(self.share * lengths.size))
        longest = np.sort(lengths)[kept - 1]
        total, number = np.zeros(updates.changes.shape[1]), 0
        for p in range(lengths.size):
            if lengths[p] <= longest:
                total += updates.changes[p]
                number += 1
        return total / number
