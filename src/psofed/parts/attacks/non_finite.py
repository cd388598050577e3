"""Values that are not numbers."""

import math

from psofed.parts import Attack
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class NonFinite(Attack):
    """A Byzantine participant sends NaN, infinity or minus infinity, with probability p_a.

    Entries 0, 3, 6, … become NaN, entries 1, 4, 7, … infinity, entries 2, 5, 8, … minus infinity. A server that
    averages without looking is destroyed by one such upload; here no rule lets one into the model, and what is not
    finite counts as not sent. So the attack is as harmful as ``"drop-out"``, and a test of every rule.
    """

    def corrupt(self, upload: Upload) -> float:
        """Send NaN, ∞ or −∞, by entry."""
        if upload.entry % 3 == 0:
            return math.nan
        return math.inf if upload.entry % 3 == 1 else -math.inf

    def affine(self) -> Affine:
        """State that under the mean the server's own number counts instead."""
        return Affine(own=0.0, server=1.0, is_lost=True)
