"""Wrong labels."""

from psofed.common.types import FloatArray
from psofed.parts import Attack, option
from psofed.parts.affine import PoisonedSamples
from psofed.parts.contexts import Sample


class LabelPoisoning(Attack):
    """A Byzantine client learns from wrong labels: y' = −scale · y, with probability p_a in each iteration.

    Its local model is poisoned too, participant or not; what it uploads is honestly what it has learned. Metrics are
    measured on the clean samples.

    References
    ----------
    Tolpegin, Truex, Gursoy, Liu, "Data poisoning attacks against federated learning systems", ESORICS 2020, whose
    flipped classes become a flipped sign in regression.
    """

    scale: float = option(default=1.0, low=0.0, text="factor of the flipped label", strength=True)

    def poison(self, sample: Sample) -> tuple[FloatArray, float]:
        """Flip the label."""
        return sample.inputs, -self.scale * sample.label

    def affine(self) -> PoisonedSamples:
        """State the factor of the label."""
        return PoisonedSamples(label=-self.scale)
