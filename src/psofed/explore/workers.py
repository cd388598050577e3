"""Compute in separate processes while the page stays responsive.

Each worker answers its newest question and drops older ones. A newer question interrupts the computation under way.
Where that fails, inside a long call of a C library, the process is ended and another takes over that stood ready.
"""

import _thread
import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING

from psofed.common.errors import PsofedError
from psofed.explore.answers import Answer, Simulation, Theory
from psofed.parts.registry import load_plugin, plugin_files
from psofed.scenario import Scenario
from psofed.simulation.parcels import pickle_without, unpickle_with

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_MEMORY = 4 << 30  # bytes that one process may use
_OUT_OF_MEMORY = (
    f"Out of memory: each of the explorer's processes may use {_MEMORY >> 30} GiB. "
    "Use fewer clients or parameters."
)
_UNRESPONSIVE = 0.3  # seconds without taking up a newer question, after which a process is replaced
_MOST_READY = 2  # idle processes
_FOR_PAINTING = (
    0.06  # seconds that the browser and the server have the cores to themselves after a first answer
)
_PARTING = -1  # number of the last question of a page; others count up from 1
_THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Question:
    """A question to a worker; this base class asks it to stop.

    Attributes
    ----------
    number : int
        Counts up, so that answers to earlier questions are recognised and dropped.
    """

    number: int


@dataclass(frozen=True)
class TheoryQuestion(Question):
    """A question about the theory; `metric` is the one whose best stepsize is sought."""

    scenario: Scenario
    metric: str


@dataclass(frozen=True)
class SimulationQuestion(Question):
    """A question for a simulation; `limit` is the largest stable stepsize, if theory knows it."""

    scenario: Scenario
    limit: float | None


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


class StoppedError(Exception):
    """A newer question has arrived."""


def run(connection: Connection, warm: Event, plugins: tuple[str, ...], data: "OwnData | None") -> None:
    """Answer questions until the pipe is closed: the main function of a process."""
    _bound_memory()
    # Overflow gives infinity, which the page shows as divergence; nobody reads warnings in the server's terminal.
    warnings.simplefilter("ignore", RuntimeWarning)
    for plugin in plugins:  # scenarios with these parts are unpickled here
        load_plugin(plugin)
    answering = _Answering(connection, data)
    # A newer question interrupts like Ctrl-C. Ctrl-C itself is for the server, which ends its processes.
    signal.signal(signal.SIGINT, answering.interrupted)
    answering.warm_up()
    gc.freeze()  # what is loaded now stays, and need not be searched for garbage while a slider moves
    warm.set()
    answering.work()


class _Answering:
    """Computes the newest question of a process.

    A second thread reads the pipe and interrupts the computation when a newer question arrives.
    """

    def __init__(self, connection: Connection, data: "OwnData | None") -> None:
        from psofed.explore.theory import Cache

        self._connection, self._data, self._cache = connection, data, Cache()
        self._newest = self._taken = Question(0)
        self._answer: Answer = Theory()  # to the question that was taken up, so far
        self._has_come = threading.Event()
        self._may_interrupt = False
        self._last_report = 0.0

    def warm_up(self) -> None:
        """Load the theory by using it."""
        from psofed.explore.presets import readme_fleet
        from psofed.explore.theory import Cache, theory_steps

        for _, _ in zip(range(6), theory_steps(readme_fleet(), Cache()), strict=False):
            pass

    def work(self) -> None:
        """Answer one question after the other."""
        threading.Thread(target=self._read_pipe, daemon=True).start()
        while True:
            self._has_come.wait()
            with contextlib.suppress(StoppedError):
                self._has_come.clear()
                self._taken = self._newest
                self._work_on(self._taken)
            self._may_interrupt = False

    def _work_on(self, question: Question) -> None:
        self._send(question, None)  # taken up, or stopped
        if isinstance(question, TheoryQuestion):
            self._answer, steps = Theory(), self._theory(question)
        elif isinstance(question, SimulationQuestion):
            self._answer, steps = Simulation(), self._simulation(question)
        else:
            return
        try:
            for number, answer in enumerate(self._interruptible(steps)):
                self._answer = answer
                self._send(question, answer)
                if number == 0:  # a hand that moves a slider asks again before the refinements would begin
                    self._has_come.wait(_FOR_PAINTING)
        except PsofedError as error:
            self._fail(question, str(error))
        except MemoryError:
            self._fail(question, _OUT_OF_MEMORY)
        except (ArithmeticError, ValueError) as error:
            self._fail(question, f"The computation failed: {error}")

    def _fail(self, question: Question, text: str) -> None:
        self._may_interrupt = False
        self._send(question, replace(self._answer, error=text, finished=True))

    def interrupted(self, *_: object) -> None:
        """Abort the computation if a newer question has arrived."""
        if self._may_interrupt and self._newest is not self._taken:
            self._may_interrupt = False
            raise StoppedError

    def _read_pipe(self) -> None:
        while True:
            try:
                self._newest = unpickle_with(self._connection.recv_bytes(), self._data)
            except (EOFError, OSError):
                os._exit(0)  # the server is gone
            except (
                Exception
            ):  # a scenario whose parts cannot be imported here; the server reports the exit code
                traceback.print_exc()
                os._exit(1)
            self._has_come.set()
            if self._may_interrupt:
                _thread.interrupt_main()

    def _interruptible(self, steps: Iterator[Answer]) -> Iterator[Answer]:
        """Yield the steps; while one is being computed it may be interrupted."""
        while True:
            self._may_interrupt = True
            if self._newest is not self._taken:
                raise StoppedError
            answer = next(steps, None)
            self._may_interrupt = False
            if answer is None:
                return
            yield answer

    def _send(self, question: Question, answer: Answer | None) -> None:
        """Send an answer; an interrupt in the middle would leave half of it in the pipe."""
        could, self._may_interrupt = self._may_interrupt, False
        with contextlib.suppress(OSError):
            self._connection.send((question.number, answer))
        self._may_interrupt = could

    def _theory(self, question: TheoryQuestion) -> Iterator[Answer]:
        from psofed.explore.theory import theory_steps

        return theory_steps(question.scenario, self._cache, question.metric)

    def _simulation(self, question: SimulationQuestion) -> Iterator[Answer]:
        from psofed.explore.simulating import simulation_steps

        def progress(done: float, total: int) -> None:
            now = time.monotonic()
            if now - self._last_report > 0.1 or done == total:
                self._last_report = now
                assert isinstance(self._answer, Simulation)
                self._send(question, replace(self._answer, progress=done / total))

        return simulation_steps(question.scenario, question.limit, progress)


def _bound_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
