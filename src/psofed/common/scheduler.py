"""Time, threads and identifiers: the seam between the federation and the machine it runs on.

In production these are the system's clocks and threads. The simulator (``tests/simulated``) puts its own in their
place, so that a whole federation runs in one process, in simulated time, and every run can be repeated from its seed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class Task:
    """Work that was started beside the caller."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds`, and return whether the work is done."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()


class Scheduler:
    """The system's clocks and threads."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they never go back."""
        return time.monotonic()

    def time(self) -> float:
        """Return the Unix time, which somebody may set."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def start(self, work: Callable[[], None], name: str) -> Task:
        """Start `work` beside the caller; it does not keep the process from ending."""
        return Task(work, name)

    def event(self) -> threading.Event:
        """Return a lowered flag."""
        return threading.Event()

    def lock(self) -> AbstractContextManager[Any]:
        """Return a lock."""
        return threading.Lock()

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
