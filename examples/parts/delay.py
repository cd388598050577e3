"""A delay of one iteration for every other client."""

# ruff: noqa: D102  (the base class documents these methods)
from psofed.parts import Delay


class EveryOther(Delay):
    """Clients with odd numbers are one iteration late."""

    def duration(self, departure):
        return departure.client % 2

    def longest_delay(self):
        return 1
