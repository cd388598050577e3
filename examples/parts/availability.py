"""Clients that work on five days of seven."""

# ruff: noqa: D102  (the base class documents these methods)
from psofed.parts import Availability, option


class Weekdays(Availability):
    """Clients are available on five days of seven."""

    day: int = option(default=24, low=1, text="iterations in a day")

    @property
    def time_share(self):
        return 5 / 7

    def is_available(self, presence):
        return (presence.iteration // self.day) % 7 < 5
