"""A stream that repeats each input for a while."""

# ruff: noqa: D102  (the base class documents these methods)
from psofed.parts import InputStream, option


class Sticky(InputStream):
    """Repeats each input for a number of iterations."""

    times: int = option(default=4, low=1, text="iterations that an input lasts")

    def memory_size(self, dimension):
        return dimension

    def draw(self, innovation, memory, out):
        for i in range(out.size):
            if innovation.iteration % self.times == 0:
                memory[i] = innovation.deviation * innovation.normals[i]
            out[i] = memory[i]

    def input_correlation(self):
        return 0.0
