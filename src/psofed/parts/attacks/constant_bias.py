"""A constant, added to everything."""

from psofed.parts import Attack, option
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class ConstantBias(Attack):
    """A Byzantine participant adds the same constant b to every value it uploads, with probability p_a.

    w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} b·1. It does not average out over clients, entries or time.

    Examples
    --------
    >>> attack = ConstantBias(num_byzantine=1, bias=2.0)
    >>> attack.corrupt(Upload(value=1.0, entry=0, client=0, iteration=0, normal=0.0, common_normal=0.0))
    3.0
    """

    bias: float = option(default=0.5, text="value added to every entry (b)", strength=True)

    def corrupt(self, upload: Upload) -> float:
        """Add b."""
        return upload.value + self.bias

    def affine(self) -> Affine:
        """State the offset b."""
        return Affine(offset=self.bias)
