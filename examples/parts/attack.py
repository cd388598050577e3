"""Two attacks: one on single values, with its moments for the theory, and one on whole updates."""

# ruff: noqa: D102  (the base class documents these methods)
import numpy as np

from psofed.parts import Attack, option
from psofed.parts.affine import Affine


class Jamming(Attack):
    """Adds noise of a given deviation."""

    deviation: float = option(default=0.5, low=0.0, text="deviation of the noise", strength=True)

    def corrupt(self, upload):
        return upload.value + self.deviation * upload.normal

    def affine(self):  # so that the theory covers it
        return Affine(variance=self.deviation**2)


class Reversal(Attack):
    """All attackers send the honest participants' mean update, reversed."""

    knows = "everyone"
    scale: float = option(default=1.0, low=0.0, text="length, in mean updates", strength=True)

    def craft(self, conspiracy, out):
        count = max(1, conspiracy.honest.shape[0])
        mean = np.sum(conspiracy.honest, axis=0) / count
        for a in range(out.shape[0]):
            for i in range(out.shape[1]):
                out[a, i] = -self.scale * mean[i]
