"""A clock for the SuperLink that does not jump when the machine's clock is set.

Flower compares heartbeats with the time of day. If the machine's clock is set one minute ahead, every node is offline
at once and the run is declared dead. So the part of the SuperLink that keeps heartbeats reads this clock instead. It
advances with the monotonic clock and approaches the time of day by at most a tenth of the time that passes.
"""

import datetime
import importlib
import threading
import time
from collections.abc import Callable

_SLEW = 0.1
KEEPERS = (
    "flwr.server.superlink.linkstate.in_memory_linkstate",
    "flwr.supercore.corestate.in_memory_corestate",
)
"""The modules of Flower that compare heartbeats with ``now``."""


class SteadyClock:
    """The time of day, without jumps.

    Parameters
    ----------
    wall, monotonic : callable
        The clocks that it reads, in seconds.

    Examples
    --------
    >>> wall, passed = [1000.0], [0.0]
    >>> clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    >>> wall[0] += 61.0; passed[0] += 1.0  # a second passes, and the clock is set one minute ahead
    >>> clock.seconds()
    1001.1
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._lock = threading.Lock()
        self._seconds, self._read_at = wall(), monotonic()

    def seconds(self) -> float:
        """Return the seconds since 1970."""
        with self._lock:
            read_at = self._monotonic()
            passed, self._read_at = read_at - self._read_at, read_at
            ahead = self._wall() - (self._seconds + passed)
            self._seconds += passed + max(-_SLEW * passed, min(_SLEW * passed, ahead))
            return self._seconds

    def now(self) -> datetime.datetime:
        """Return the time in UTC, in place of ``flwr.supercore.date.now``."""
        return datetime.datetime.fromtimestamp(self.seconds(), datetime.UTC)


def keep_time_steady() -> None:
    """Let this process's SuperLink keep its heartbeats by a :class:`SteadyClock`."""
    clock = SteadyClock()
    for name in KEEPERS:
        module = importlib.import_module(name)
        if not callable(getattr(module, "now", None)):
            raise RuntimeError(f"{name} of this version of Flower reads no clock called `now`")
        module.now = clock.now  # type: ignore[attr-defined]
