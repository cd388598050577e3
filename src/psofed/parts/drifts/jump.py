"""A jump."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.common.validation import check_integer
from psofed.parts import Drift, option
from psofed.parts.contexts import Step


class Jump(Drift):
    """Jump: at one iteration w* moves by a vector of given length in a random direction, and stays there.

    Examples
    --------
    >>> Jump(size=1.0)
    Traceback (most recent call last):
    psofed.common.errors.MissingArgumentError: drift.at is required: an integer of at least 0.
    """

    size: float = option(low=0.0, text="Euclidean length of the jump; w* itself has length 1")
    at: int = option(low=0, text="first iteration with labels from the new target")

    def move(self, step: Step) -> FloatArray:
        """Return 0 before iteration `at` and the jump from then on."""
        return self.size * step.direction if step.iteration >= self.at else np.zeros(step.direction.size)

    def check(self, iterations: int) -> None:
        """Refuse a run that ends before the jump."""
        check_integer("drift.at", self.at, 0, iterations - 1, "iterations - 1")

    def jump_iteration(self) -> int:
        """Return `at`."""
        return self.at
