"""The built-in defences."""

import math
from typing import ClassVar

from psofed.common.types import FloatArray
from psofed.parts import Defence, option
from psofed.parts.contexts import Evidence


class None_(Defence):  # noqa: N801 (None itself is Python's)
    """No defence: every client is included."""

    kind: ClassVar[str] = "none"

    def suspicion(self, evidence: Evidence, memory: FloatArray) -> float:
        """Return 0."""
        return 0.0


class Cusum(Defence):
    """CUSUM charts: sums of log-likelihood ratios of residuals, for a larger variance and for a shifted mean.

    With s a residual over its honest deviation, the three sums of a client become with every upload

        W ← max(0, W + Σ ½ (s² (1 − 1/ratio) − ln ratio)),
        U ← max(0, U + Σ shift · (c − shift/2)),
        L ← max(0, L − Σ shift · (c + shift/2)),

    over the numbers it sends, where c is s cut to ±3, so that one far-off number is a matter of W alone. The suspicion
    is the largest of them (E. S. Page, Continuous inspection schemes, Biometrika 41, 1954).
    """

    memory_size: ClassVar[int] = 3

    ratio: float = option(default=10.0, low=1.0, open_low=True, text="residual variance, Byzantine over honest")
    shift: float = option(default=1.0, low=0.0, text="mean of Byzantine residuals, in honest deviations; 0: ignored")

    def suspicion(self, evidence: Evidence, memory: FloatArray) -> float:
        """Return the largest of the three sums."""
        gain, toll = 0.5 * (1.0 - 1.0 / self.ratio), 0.5 * math.log(self.ratio)
        noise, up, down = memory[0], memory[1], memory[2]
        for j in range(evidence.scores.size):
            score = evidence.scores[j]
            noise += gain * score * score - toll
            cut = min(max(score, -3.0), 3.0)
            up += self.shift * (cut - 0.5 * self.shift)
            down -= self.shift * (cut + 0.5 * self.shift)
        memory[0], memory[1], memory[2] = max(0.0, noise), max(0.0, up), max(0.0, down)
        return float(max(memory[0], memory[1], memory[2]))
