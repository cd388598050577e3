"""Attacks that change what a Byzantine client learns from."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Attack, option
from psofed.parts.affine import PoisonedSamples
from psofed.parts.contexts import Sample


class DataPoisoning(Attack):
    """A Byzantine client learns from corrupted inputs: x' = x + ξ, ξ ~ N(0, variance · I), with probability p_a.

    The label stays y. Noise in the inputs makes least squares shrink towards zero, so its local model is poisoned too,
    participant or not; what it uploads is honestly what it has learned. Metrics are measured on the clean samples.

    References
    ----------
    Steinhardt, Koh, Liang, "Certified defenses for data poisoning attacks", NeurIPS 2017.
    """

    variance: float = option(default=0.5, low=0.0, text="variance of the noise in the inputs", strength=True)

    def poison(self, sample: Sample) -> tuple[FloatArray, float]:
        """Add ξ to the inputs."""
        return sample.inputs + math.sqrt(self.variance) * sample.normals, sample.label

    def affine(self) -> PoisonedSamples:
        """State the noise in the inputs."""
        return PoisonedSamples(input_noise_variance=self.variance)


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
