"""The paper's model."""

from psofed.parts import Model
from psofed.parts.features import FeatureMap, identity


class Linear(Model):
    """The paper's model, ŷ = wᵀx."""

    def make_features(self, input_dimension: int, dimension: int) -> FeatureMap:
        """Return z(x) = x."""
        return identity(input_dimension)
