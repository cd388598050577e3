"""Compute in separate processes while the page stays responsive.

Each worker answers its newest question and drops older ones. A newer question interrupts the computation under way.
Where that fails, inside a long call of a C library, the process is ended and another takes over that stood ready.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from psofed.explore.answering import Question, SimulationQuestion, TheoryQuestion, run
from psofed.explore.answers import Answer, Simulation, Theory
from psofed.parts.registry import plugin_files
from psofed.simulation.parcels import pickle_without

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_UNRESPONSIVE = 0.3  # seconds without taking up a newer question, after which a process is replaced
_MOST_READY = 2  # idle processes
_PARTING = -1  # number of the last question of a page; others count up from 1
_THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


# Called from another thread, with the question's number and the answer so far.
Listener = Callable[[int, Answer], None]


class Pool:
    """Starts processes, and keeps one ready, or two if one came back.

    Parameters
    ----------
    data : OwnData, optional
        The user's table; every process gets a copy.
    """

    def __init__(self, data: "OwnData | None" = None) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._ready: list[_Process] = []
        self._closed = False
        # Small matrices are slower on several threads, so processes started from here use one.
        for name in _THREAD_SETTINGS:
            os.environ.setdefault(name, "1")
        self.refill()

    def refill(self) -> None:
        """Start a process if none is ready."""
        with self._lock:
            if not self._ready and not self._closed:
                self._ready.append(_Process(self._data))

    def take(self) -> "_Process":
        """Return a ready process, and start another."""
        with self._lock:
            # The one that came back last has everything loaded.
            taken = self._ready.pop() if self._ready else None
        process = taken if taken is not None else _Process(self._data)
        self.refill()
        return process

    def give_back(self, process: "_Process") -> None:
        """Keep a process for the next page if it stops computing at once; a fresh one takes a second to start."""
        if process.is_warm() and process.stops():
            with self._lock:
                if len(self._ready) < _MOST_READY and not self._closed:
                    self._ready.append(process)
                    return
        process.end()

    def has_warm_process(self) -> bool:
        """Return whether a ready process has everything loaded."""
        with self._lock:
            return bool(self._ready) and self._ready[-1].is_warm()

    def close(self) -> None:
        """End the ready processes, and start no others."""
        with self._lock:
            self._closed = True
            taken, self._ready = self._ready, []
        for process in taken:
            process.end()


class Worker:
    """Answers the newest question, in its own process.

    Parameters
    ----------
    pool : Pool
        Source of processes.
    listener : callable
        Receives the answers.
    """

    def __init__(self, pool: Pool, listener: Listener) -> None:
        self._pool, self._listener = pool, listener
        self._lock = threading.RLock()
        self._asked: Question | None = None
        self._waiting_since: float | None = None  # for the process to take up the question
        self._closed = False
        self._process = pool.take()
        threading.Thread(target=self._listen, name="psofed explorer", daemon=True).start()

    def ask(self, question: Question) -> None:
        """Ask a question; earlier ones are dropped."""
        with self._lock:
            self._asked = question
            self._waiting_since = time.monotonic()
            self._process.send(question)

    def close(self) -> None:
        """Return the process to the pool."""
        with self._lock:
            self._closed = True

    def _listen(self) -> None:
        while not self._closed:
            process = self._process
            try:
                if process.connection.poll(0.1):
                    self._hear(*process.connection.recv())
                else:
                    self._replace_if_stuck()
            except (EOFError, OSError):
                if not self._closed and process is self._process:
                    self._report_end()
        with self._lock:
            self._pool.give_back(self._process)

    def _hear(self, number: int, answer: Answer | None) -> None:
        with self._lock:
            if self._asked is None or number != self._asked.number:
                return
            self._waiting_since = None
        if answer is not None:
            self._listener(number, answer)

    def _replace_if_stuck(self) -> None:
        with self._lock:
            since = self._waiting_since
            if (
                self._closed
                or since is None
                or time.monotonic() - since < _UNRESPONSIVE
                or not self._process.is_warm()
            ):
                return
            if self._pool.has_warm_process():
                self._process.end()
                self._process = self._pool.take()
                if self._asked is not None:
                    self.ask(self._asked)

    def _report_end(self) -> None:
        """Report that a process has ended by itself, with the signal or exit code that is known."""
        with self._lock:
            reason = self._process.cause_of_end()
            self._process.end()
            self._process = self._pool.take()
            self._waiting_since = None
            asked = self._asked
        error = f"The computing process ended: {reason}. Change a setting to try again."
        if isinstance(asked, TheoryQuestion):
            self._listener(asked.number, Theory(error=error, finished=True))
        elif isinstance(asked, SimulationQuestion):
            self._listener(asked.number, Simulation(error=error, finished=True))


class _Process:
    """A process and the two ends of its pipe."""

    def __init__(self, data: "OwnData | None") -> None:
        context = multiprocessing.get_context("spawn")
        here, other = context.Pipe()
        self.connection: Connection = here
        self._warm = context.Event()
        arguments = (other, self._warm, plugin_files(), data)
        self._process = context.Process(target=run, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self._data = data

    def is_warm(self) -> bool:
        """Return whether it has loaded everything."""
        return bool(self._warm.is_set())

    def send(self, question: Question) -> None:
        with contextlib.suppress(OSError):
            self.connection.send_bytes(pickle_without(question, self._data))

    def stops(self) -> bool:
        """Stop the computation; return whether the process reacts in time."""
        deadline = time.monotonic() + _UNRESPONSIVE
        try:
            self.send(Question(_PARTING))
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                if self.connection.recv()[0] == _PARTING:
                    return True
        except (EOFError, OSError):
            pass
        return False

    def cause_of_end(self) -> str:
        """Return how a process ended by itself."""
        self._process.join(1.0)  # the end of its pipe is noticed shortly before its own
        code = self._process.exitcode
        if code is None:
            return "its pipe was closed"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()
