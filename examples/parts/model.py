"""A model: cosines of the inputs, each at the next higher frequency."""

# ruff: noqa: D102  (the base class documents these methods)
import numpy as np

from psofed.parts import Model, option
from psofed.parts.features import FeatureMap


class Harmonics(Model):
    """Feature i is a cosine of input i mod d, at the frequency of the (i div d)-th harmonic."""

    period: float = option(default=8.0, low=0.0, open_low=True, text="period of the lowest frequency")

    def make_features(self, input_dimension, dimension):
        frequencies = np.zeros((dimension, input_dimension))
        for i in range(dimension):
            frequencies[i, i % input_dimension] = (1 + i // input_dimension) / self.period
        return FeatureMap(frequencies, np.full(dimension, 0.125), (2.0 / dimension) ** 0.5)
