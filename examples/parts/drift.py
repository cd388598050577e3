"""A target that moves at a constant speed."""

# ruff: noqa: D102  (the base class documents these methods)
from psofed.parts import Drift, option


class Ramp(Drift):
    """The target moves at a constant speed in one direction."""

    speed: float = option(low=0.0, text="distance per iteration")

    def move(self, step):
        return self.speed * step.iteration * step.direction
