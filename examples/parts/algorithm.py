"""An algorithm that sends the largest entries of an update."""

# ruff: noqa: D102  (the base class documents these methods)
import numpy as np

from psofed.parts import Algorithm, option
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, spend_budget


class TopK(Algorithm):
    """Participants send the k largest entries of their update."""

    kind = "top-k"

    top: int = option(default=2, low=1, text="k: number of entries sent")

    def traffic(self, scenario):
        up = min(self.top, scenario.dimension) * (BITS_PER_NUMBER + 16)  # a value, and the index of its entry
        return spend_budget(scenario, bits_up=up, bits_down=BITS_PER_NUMBER * scenario.dimension)

    def exchange(self, scenario):
        return Exchange(numbers=scenario.dimension)

    def encode(self, message, out):
        magnitudes = np.abs(message.update)
        kept = min(self.top, out.size)
        threshold = np.sort(magnitudes)[out.size - kept]
        for i in range(out.size):
            out[i] = message.update[i] if magnitudes[i] >= threshold else 0.0
