"""One small part of each family: docs/part_families.md says what each method has to do.

psofed simulate scenario.toml --plugin examples/own_parts.py --set aggregation=midrange

Parts that remember something about each client are in ``parts_with_memory.py``.
"""

# ruff: noqa: D102  (the base classes document these methods)
import math

import numpy as np

from psofed.parts import (
    Aggregation,
    Algorithm,
    Availability,
    Channel,
    Defence,
    Delay,
    Drift,
    Function,
    InputStream,
    Learner,
    Pattern,
    PreAggregation,
    option,
)
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, spend_budget


class Midrange(Aggregation):
    """Moves each entry towards the middle between the lowest and the highest number sent."""

    over = "entries"

    def combine(self, numbers):
        return 0.5 * (np.min(numbers.values) + np.max(numbers.values))


class Shortest(Aggregation):
    """Averages the shortest updates, a given share of them."""

    over = "vectors"

    share: float = option(
        default=0.5, low=0.0, high=1.0, open_low=True, text="fraction of the updates that count"
    )

    def combine(self, updates):
        lengths = np.sum(updates.changes**2, axis=1)
        kept = max(1, int(self.share * lengths.size))
        longest = np.sort(lengths)[kept - 1]
        total, number = np.zeros(updates.changes.shape[1]), 0
        for p in range(lengths.size):
            if lengths[p] <= longest:
                total += updates.changes[p]
                number += 1
        return total / number


class Average(Defence):
    """Suspects clients whose squared scores, smoothed over their uploads, are high."""

    rate: float = option(default=0.2, low=0.0, high=1.0, open_low=True, text="weight of the newest upload")

    def suspicion(self, evidence, memory):
        newest = np.mean(np.minimum(evidence.scores**2, 100.0))
        memory[0] += self.rate * (newest - memory[0])
        return memory[0]


class Halved(PreAggregation):
    """Every update counts for half."""

    def weigh(self, updates, out):
        for p in range(out.shape[0]):
            out[p, p] = 0.5


class Blocks(Pattern):
    """Shares a run of M neighbouring entries that begins anywhere."""

    def select(self, mask, out):
        first = int(mask.uniforms[0] * mask.dimension)
        for m in range(mask.num_shared):
            out[m] = (first + m) % mask.dimension

    def mask_moments(self, dimension, num_shared):
        second = np.zeros((dimension, dimension))
        for first in range(dimension):
            mask = np.zeros(dimension)
            mask[(first + np.arange(num_shared)) % dimension] = 1.0
            second += np.outer(mask, mask) / dimension
        return num_shared / dimension, second


class Huber(Learner):
    """Bounds the error that a step is proportional to."""

    bound: float = option(default=0.5, low=0.0, open_low=True, text="largest error that counts in full")

    def gain(self, residual):
        return residual.stepsize * max(-self.bound, min(self.bound, residual.error))


class Momentum(Learner):
    """Averages the last steps."""

    decay: float = option(default=0.5, low=0.0, high=1.0, open_high=True, text="weight of the past")

    def initial_memory(self, dimension):
        return np.zeros(dimension)

    def learn(self, observation, memory, out):
        for i in range(out.size):
            step = observation.stepsize * observation.error * observation.inputs[i]
            memory[i] = self.decay * memory[i] + (1.0 - self.decay) * step
            out[i] = memory[i]


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


class Ramp(Drift):
    """The target moves at a constant speed in one direction."""

    speed: float = option(low=0.0, text="distance per iteration")

    def move(self, step):
        return self.speed * step.iteration * step.direction


class Weekdays(Availability):
    """Clients are available on five days of seven."""

    day: int = option(default=24, low=1, text="iterations in a day")

    @property
    def time_share(self):
        return 5 / 7

    def is_available(self, presence):
        return (presence.iteration // self.day) % 7 < 5


class Fading(Channel):
    """A message arrives attenuated by a random factor."""

    def transmit(self, transmission, out):
        factor = 0.5 + 0.5 * transmission.message_uniform
        for i in range(out.size):
            out[i] = factor * transmission.values[i]


class EveryOther(Delay):
    """Clients with odd numbers are one iteration late."""

    def duration(self, departure):
        return departure.client % 2

    def longest_delay(self):
        return 1


class Bump(Function):
    """f(x) = exp(−‖x‖²/(2 width²))."""

    width: float = option(default=1.0, low=0.0, open_low=True, text="width of the bump")

    def value(self, x):
        return math.exp(-np.sum(x * x) / (2.0 * self.width**2))


class TopK(Algorithm):
    """Participants send the k largest entries of their update."""

    kind = "top-k"

    top: int = option(default=2, low=1, text="k: number of entries sent")

    def traffic(self, scenario):
        up = min(self.top, scenario.dimension) * (BITS_PER_NUMBER + 16)  # a value, and the index of its entry
        return spend_budget(scenario, bits_up=up, bits_down=BITS_PER_NUMBER * scenario.dimension)

    def exchange(self, scenario):
        return Exchange(numbers=scenario.dimension)

    def encode(self, message, out):
        magnitudes = np.abs(message.update)
        kept = min(self.top, out.size)
        threshold = np.sort(magnitudes)[out.size - kept]
        for i in range(out.size):
            out[i] = message.update[i] if magnitudes[i] >= threshold else 0.0
