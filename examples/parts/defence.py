"""A defence that smooths how far each client is from the others."""

# ruff: noqa: D102  (the base class documents these methods)
import numpy as np

from psofed.parts import Defence, option


class Average(Defence):
    """Suspects clients whose squared scores, smoothed over their uploads, are high."""

    rate: float = option(default=0.2, low=0.0, high=1.0, open_low=True, text="weight of the newest upload")

    def suspicion(self, evidence, memory):
        newest = np.mean(np.minimum(evidence.scores**2, 100.0))
        memory[0] += self.rate * (newest - memory[0])
        return memory[0]
