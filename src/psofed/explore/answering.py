"""Answer questions in a process of its own: what :mod:`psofed.explore.workers` starts.

A second thread reads the pipe, and interrupts the computation under way when a newer question arrives.
"""

import _thread
import contextlib
import gc
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING

from psofed.common.errors import PsofedError
from psofed.explore.answers import Answer, Simulation, Theory
from psofed.parts.registry import load_plugin
from psofed.scenario import Scenario
from psofed.simulation.parcels import unpickle_with

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_MEMORY = 4 << 30  # bytes that one process may use
_OUT_OF_MEMORY = (
    f"Out of memory: each of the explorer's processes may use {_MEMORY >> 30} GiB. "
    "Use fewer clients or parameters."
)
_FOR_PAINTING = 0.06  # seconds that browser and server have the cores to themselves after a first answer


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
    """Computes the newest question of a process."""

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
            except Exception:  # parts that cannot be imported here; the server reports the exit code
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
