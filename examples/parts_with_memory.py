"""Parts that remember something about each client: docs/write_a_part.md explains how.

psofed simulate scenario.toml --plugin examples/parts_with_memory.py --set attack.kind=stale
"""

# ruff: noqa: D102  (the base classes document these methods)
import numpy as np

from psofed.parts import Attack, Availability, Channel, Delay, option


class Stale(Attack):
    """Sends the client's model of some iterations ago."""

    age: int = option(default=20, low=1, text="how many iterations ago")

    def memory_size(self, dimension):
        return (self.age + 1) * dimension

    def remember(self, moment, memory):
        for i in range(moment.model.size):
            memory[(moment.iteration % (self.age + 1)) * moment.model.size + i] = moment.model[i]

    def corrupt(self, upload, memory):
        dimension = memory.size // (self.age + 1)
        return memory[((upload.iteration + 1) % (self.age + 1)) * dimension + upload.entry]


class Rounded(Channel):
    """Rounds to multiples of a step, and adds what rounding lost to the next message."""

    step: float = option(default=0.1, low=0.0, open_low=True, text="distance between levels")

    def memory_size(self, dimension):
        return dimension

    def transmit(self, transmission, memory, out):
        for m in range(out.size):
            i = transmission.entries[m]
            wanted = transmission.values[m] + memory[i]
            out[m] = self.step * np.round(wanted / self.step)
            memory[i] = wanted - out[m]


class Tired(Availability):
    """Clients work for a number of iterations and then rest for as many."""

    work: int = option(default=3, low=1, text="iterations of work, and of rest")

    @property
    def time_share(self):
        return 0.5

    def memory_size(self, dimension):
        return 1

    def is_available(self, presence, memory):
        memory[0] = (memory[0] + 1) % (2 * self.work)
        return memory[0] < self.work


class Queue(Delay):
    """An upload never overtakes an earlier one of the same client."""

    longest: int = option(default=3, low=0, text="longest delay")

    def memory_size(self, dimension):
        return 1

    def duration(self, departure, memory):
        arrival = departure.iteration + int(departure.uniform * (self.longest + 1))
        memory[0] = max(memory[0], arrival)
        return int(memory[0]) - departure.iteration

    def longest_delay(self):
        return self.longest


class TakingTurns(Attack):
    """Byzantine clients of the group attack one at a time, in turn."""

    size: float = option(default=1.0, text="how much it adds", strength=True)

    def corrupt(self, upload):
        turn = upload.group[upload.iteration % upload.group.size]
        return upload.value + (self.size if upload.client == turn else 0.0)
