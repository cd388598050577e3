"""Silence."""

import math

from psofed.parts import Attack
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class DropOut(Attack):
    """A Byzantine participant downloads and then stays silent, with probability p_a.

    Nothing of its upload arrives; under the mean it counts, as an entry that is not shared does, with the server's old
    value. Its strength is how often it does so.
    """

    def corrupt(self, upload: Upload) -> float:
        """Send nothing."""
        return math.nan

    def affine(self) -> Affine:
        """State that under the mean the server's own number counts instead."""
        return Affine(own=0.0, server=1.0, is_lost=True)
