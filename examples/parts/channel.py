"""A channel that attenuates messages at random."""

# ruff: noqa: D102  (the base class documents these methods)
from psofed.parts import Channel


class Fading(Channel):
    """A message arrives attenuated by a random factor."""

    def transmit(self, transmission, out):
        factor = 0.5 + 0.5 * transmission.message_uniform
        for i in range(out.size):
            out[i] = factor * transmission.values[i]
