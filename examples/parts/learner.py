"""Two learners: one bounds its error, one remembers its last steps."""

# ruff: noqa: D102  (the base class documents these methods)
import numpy as np

from psofed.parts import Learner, option


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
