"""Compute in separate processes while the page stays responsive.

Each worker answers its newest question. Its process looks for a newer one between two steps of an answer. Where a step
takes long, the process is ended, and another takes over.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from psofed.common.errors import PsofedError
from psofed.explore.answers import Answer, Simulation, Theory
from psofed.explore.presets import readme_fleet
from psofed.parts.registry import load_plugin, plugin_files
from psofed.scenario import Scenario
from psofed.simulation.parcels import pickle_without, unpickle_with

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_UNRESPONSIVE = 0.3  # seconds without taking up a newer question, after which a process is replaced
_FOR_PAINTING = 0.06  # seconds that browser and server have the cores to themselves after a first answer
_MEMORY = 4 << 30  # bytes that one process may use
_THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

# Called from another thread with the question's number and the answer so far.
Listener = Callable[[int, Answer], None]


@dataclass(frozen=True)
class Question:
    """A question to a process.

    Attributes
    ----------
    scenario : Scenario, optional
        What to compute; without one the process stops computing.
    simulated : bool
        Whether to simulate; else theory answers.
    metric : str
        Metric whose best stepsize the theory seeks.
    limit : float, optional
        Largest stable stepsize, if theory knows it, for a simulation.
    """

    scenario: Scenario | None = None
    simulated: bool = False
    metric: str = "network_mse"
    limit: float | None = None


def process_context() -> Any:
    """Return what starts processes: copies of one that has loaded everything, where the system can copy."""
    # Small matrices are slower on several threads, so processes started from here use one.
    for name in _THREAD_SETTINGS:
        os.environ.setdefault(name, "1")
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["psofed.explore.steps", "psofed.simulation.monte_carlo"])
    forkserver.ensure_running()
    return context


class Worker:
    """Answers the newest question, in its own process.

    Parameters
    ----------
    data : OwnData, optional
        The user's table; the process gets a copy.
    listener : callable
        Receives the answers.
    """

    def __init__(self, data: "OwnData | None", listener: Listener) -> None:
        self._data, self._listener = data, listener
        self._lock = threading.RLock()
        self._asked = 0, Question()
        self._waiting_since: float | None = None  # for the process to take up the question
        self._closed = False
        self._start()
        threading.Thread(target=self._listen, name="psofed explorer", daemon=True).start()

    def ask(self, number: int, question: Question) -> None:
        """Ask a question under a number that is larger than those before, whose answers are dropped."""
        with self._lock:
            self._asked = number, question
            self._waiting_since = time.monotonic()
            with contextlib.suppress(OSError):
                self._connection.send_bytes(pickle_without((number, question), self._data))

    def close(self) -> None:
        """End the process."""
        self._closed = True

    def _start(self) -> None:
        context = process_context()
        self._connection, there = context.Pipe()
        arguments = (there, plugin_files(), self._data)
        self._process = context.Process(target=run, args=arguments, daemon=True)
        self._process.start()
        there.close()
        self._is_ready = False

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _listen(self) -> None:
        while not self._closed:
            try:
                if self._connection.poll(0.1):
                    self._hear(*self._connection.recv())
                elif self._is_ready and time.monotonic() - (self._waiting_since or math.inf) > _UNRESPONSIVE:
                    self._replace()
            except (EOFError, OSError):
                if not self._closed:  # else the server is ending, and its processes with it
                    self._report_end()
        self._end()

    def _hear(self, number: int, answer: Answer | None) -> None:
        with self._lock:
            self._is_ready = True
            if number != self._asked[0]:
                return
            self._waiting_since = None
        if answer is not None:
            self._listener(number, answer)

    def _replace(self) -> None:
        with self._lock:
            self._end()
            self._start()
            self.ask(*self._asked)

    def _report_end(self) -> None:
        """Report that a process has ended by itself, with the signal or exit code that is known."""
        with self._lock:
            self._process.join(1.0)  # the end of its pipe is noticed shortly before its own
            code = self._process.exitcode
            self._end()
            self._start()
            self._waiting_since = None
            number, question = self._asked
        reason = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        error = f"The computing process ended: {reason}. Change a setting to try again."
        if question.scenario is not None:
            answer = Simulation if question.simulated else Theory
            self._listener(number, answer(error=error, finished=True))


class _StoppedError(Exception):
    """A newer question has arrived."""


def run(connection: Connection, plugins: tuple[str, ...], data: "OwnData | None") -> None:
    """Answer questions until the pipe is closed: the main function of a process."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its processes
    # Overflow gives infinity, which the page shows as divergence; nobody reads warnings in the server's terminal.
    warnings.simplefilter("ignore", RuntimeWarning)
    for plugin in plugins:  # scenarios with these parts are unpickled here
        load_plugin(plugin)
    next(_steps(connection, 0, Question(readme_fleet())))  # loads the theory
    with contextlib.suppress(EOFError, OSError):
        connection.send((0, None))  # ready
        while True:
            content = connection.recv_bytes()
            while connection.poll():
                content = connection.recv_bytes()
            number, question = unpickle_with(content, data)
            connection.send((number, None))
            _answer(connection, number, question)


def _answer(connection: Connection, number: int, question: Question) -> None:
    """Send the answer so far after each step, until a newer question arrives."""
    answer: Answer = Simulation() if question.simulated else Theory()
    try:
        for step, answer in enumerate(_steps(connection, number, question)):
            connection.send((number, answer))
            # A hand that moves a slider asks again before the refinements would begin.
            if connection.poll(_FOR_PAINTING if step == 0 else 0):
                return
        return
    except _StoppedError:
        return
    except PsofedError as error:
        text = str(error)
    except MemoryError:
        text = f"Out of memory: a process may use {_MEMORY >> 30} GiB. Use fewer clients or parameters."
    except (ArithmeticError, ValueError) as error:
        text = f"The computation failed: {error}"
    connection.send((number, replace(answer, error=text, finished=True)))


def _steps(connection: Connection, number: int, question: Question) -> Iterator[Answer]:
    from psofed.explore.steps import simulation_steps, theory_steps

    if question.scenario is None:
        return
    if not question.simulated:
        yield from theory_steps(question.scenario, question.metric)
        return
    answer, reported = Simulation(), 0.0

    def progress(done: float, total: int) -> None:
        nonlocal reported
        if connection.poll():
            raise _StoppedError
        if time.monotonic() - reported > 0.2:
            reported = time.monotonic()
            connection.send((number, replace(answer, progress=done / total)))

    for answer in simulation_steps(question.scenario, question.limit, progress):
        yield answer
