"""Time and identifiers: the seam between the federation and the machine it runs on.

In production these are the system's clocks. The simulator (``tests/simulated``) puts its own in their
place, so that a whole federation runs in one process, in simulated time, and every run can be repeated from its seed.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager


class Scheduler:
    """The system's clocks."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they never go back."""
        return time.monotonic()

    def time(self) -> float:
        """Return the Unix time, which somebody may set."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def new_id(self) -> str:
        """Return 32 random hexadecimal digits."""
        return uuid.uuid4().hex


def scheduler() -> Scheduler:
    """Return the scheduler of this process."""
    return _schedulers[-1]


@contextmanager
def use_scheduler(other: Scheduler) -> Iterator[None]:
    """Run on another scheduler within the block: a simulated one, in tests."""
    _schedulers.append(other)
    try:
        yield
    finally:
        _schedulers.pop()


_schedulers: list[Scheduler] = [Scheduler()]
