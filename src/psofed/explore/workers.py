"""Processes that compute while the page stays awake: each answers its newest question, and drops older ones.

A newer question interrupts what is being computed. Where that fails, inside a long call of a library in C, the
process is ended, and a fresh one that stood ready takes over.
"""

import _thread
import contextlib
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from psofed.common.errors import PsofedError

if TYPE_CHECKING:
    from psofed.fleet.own_data import OwnData

_MEMORY = 4 << 30  # bytes that one process may take
_TOO_LONG = 0.3  # seconds for which a process may leave a newer question in the pipe
_MOST_READY = 2  # processes that stand ready
_PARTING = -1  # number of the last question of a page; others count up from 1
_STEADY_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Update = dict[str, Any]
# Called with the question's number and what is new, from another thread.
Listener = Callable[[int, Update], None]


@dataclass(frozen=True)
class Question:
    """A question to a worker process.

    Attributes
    ----------
    number : int
        Counts up, so that answers to old questions are told apart.
    kind : str
        ``"theory"``, ``"simulation"``, or ``"nothing"`` to stop.
    mapping : dict
        The scenario.
    own_data : bool
        Whether it learns from the user's table.
    options : dict
        What else there is to know: the metric, the limit of stability.
    """

    number: int
    kind: str
    mapping: dict[str, Any] = field(default_factory=dict)
    own_data: bool = False
    options: dict[str, Any] = field(default_factory=dict)


class Pool:
    """Starts processes, and keeps one ready, or two if one came back.

    Parameters
    ----------
    data : OwnData, optional
        The user's table, which every process is given.
    """

    def __init__(self, data: "OwnData | None" = None) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._ready: list[_Process] = []
        self._closed = False
        # Small matrices are slower on several threads; what is started from here on keeps to one.
        for name in _STEADY_THREADS:
            os.environ.setdefault(name, "1")
        self.refill()

    def refill(self) -> None:
        """Have a process ready."""
        with self._lock:
            if not self._ready and not self._closed:
                self._ready.append(_Process(self._data))

    def take(self) -> "_Process":
        """Return a process that is ready, and see to it that another is."""
        with self._lock:
            # The one that came back last has everything loaded.
            taken = self._ready.pop() if self._ready else None
        process = taken if taken is not None else _Process(self._data)
        self.refill()
        return process

    def give_back(self, process: "_Process") -> None:
        """Keep a process for the next page, if it lets go of what it computes; a fresh one takes a second to start."""
        if process.is_warm() and process.lets_go():
            with self._lock:
                if len(self._ready) < _MOST_READY and not self._closed:
                    self._ready.append(process)
                    return
        process.end()

    def has_warm_process(self) -> bool:
        """Whether a process stands ready with everything loaded."""
        with self._lock:
            return bool(self._ready) and self._ready[-1].is_warm()

    def close(self) -> None:
        """End the processes that are ready, and start no more."""
        with self._lock:
            self._closed = True
            taken, self._ready = self._ready, []
        for process in taken:
            process.end()


class Worker:
    """Answers the newest question, in a process of its own.

    Parameters
    ----------
    pool : Pool
        Where processes come from.
    listener : callable
        Is told what is new.
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
        """Ask; what was asked before is dropped."""
        with self._lock:
            self._asked = question
            self._waiting_since = time.monotonic()
            self._process.send(question)

    def close(self) -> None:
        """Ask nothing any more; the process goes back to where it came from."""
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

    def _hear(self, number: int, update: Update) -> None:
        with self._lock:
            if self._asked is None or number != self._asked.number:
                return
            self._waiting_since = None
        if update:
            self._listener(number, update)

    def _replace_if_stuck(self) -> None:
        with self._lock:
            since = self._waiting_since
            if (
                self._closed
                or since is None
                or time.monotonic() - since < _TOO_LONG
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
        if asked is not None and asked.kind != "nothing":
            self._listener(
                asked.number,
                {
                    "error": f"The computing process ended: {reason}. Change a setting to try again.",
                    "finished": True,
                },
            )


_OUT_OF_MEMORY = (
    f"Out of memory: each of the explorer's processes may use {_MEMORY >> 30} GiB. "
    "Use fewer clients or parameters."
)


class _Process:
    """A process and the two ends of its pipe."""

    def __init__(self, data: "OwnData | None") -> None:
        context = multiprocessing.get_context("spawn")
        here, other = context.Pipe()
        self.connection: Connection = here
        self._warm = context.Event()
        self._process = context.Process(target=run, args=(other, self._warm, data), daemon=True)
        self._process.start()
        other.close()

    def is_warm(self) -> bool:
        """Whether it has loaded what it needs."""
        return bool(self._warm.is_set())

    def send(self, question: Question) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(question)

    def lets_go(self) -> bool:
        """Whether it drops what it computes within the time that a newer question may wait."""
        deadline = time.monotonic() + _TOO_LONG
        try:
            self.connection.send(Question(_PARTING, "nothing"))
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
    """A newer question has come."""


def run(connection: Connection, warm: Any, data: "OwnData | None") -> None:
    """Answer questions until the pipe is closed; what a process does."""
    _bound_memory()
    # Numbers that overflow end as infinite, and the page says so; the server's terminal is no place for warnings.
    warnings.simplefilter("ignore", RuntimeWarning)
    desk = _Desk(connection, data)
    # A newer question interrupts as Ctrl-C would; Ctrl-C itself is for the server, which ends its processes.
    signal.signal(signal.SIGINT, desk.interrupted)
    desk.warm_up()
    warm.set()
    desk.work()


class _Desk:
    """Work of a process: the steps of its newest question.

    A thread reads the pipe, and interrupts the step that is under way when a newer question has come.
    """

    def __init__(self, connection: Connection, data: "OwnData | None") -> None:
        from psofed.explore.theory import Cache

        self._connection, self._data, self._cache = connection, data, Cache()
        self._newest = self._taken = Question(0, "nothing")
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
        if question.kind == "nothing":
            self._send(question, {"stopped": True})
            return
        self._send(question, {})  # taken up
        try:
            for update in self._checked(self._answer(question)):
                self._send(question, update)
        except PsofedError as error:
            self._end(question, str(error))
        except MemoryError:
            self._end(question, _OUT_OF_MEMORY)
        except (ArithmeticError, ValueError) as error:
            self._end(question, f"cannot be computed: {error}")

    def _end(self, question: Question, text: str) -> None:
        self._may_interrupt = False
        self._send(question, {"error": text, "finished": True})

    def interrupted(self, *_: Any) -> None:
        """Drop the step under way, if a newer question has come."""
        if self._may_interrupt and self._newest is not self._taken:
            self._may_interrupt = False
            raise StoppedError

    def _read_pipe(self) -> None:
        while True:
            try:
                self._newest = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)  # the server is gone
            self._has_come.set()
            if self._may_interrupt:
                _thread.interrupt_main()

    def _checked(self, steps: Iterator[Update]) -> Iterator[Update]:
        """Yield the steps; while one is computed it may be interrupted."""
        while True:
            self._may_interrupt = True
            if self._newest is not self._taken:
                raise StoppedError
            update = next(steps, None)
            self._may_interrupt = False
            if update is None:
                return
            yield update

    def _send(self, question: Question, update: Update) -> None:
        """Send an update, whole."""
        could, self._may_interrupt = self._may_interrupt, False
        with contextlib.suppress(OSError):
            self._connection.send((question.number, update))
        self._may_interrupt = could

    def _answer(self, question: Question) -> Iterator[Update]:
        from psofed.explore.settings import Limits, make_scenario

        data = self._data if question.own_data else None
        no_limits = Limits(10**9, 10**9, 10**9)  # they were checked before the question was asked
        scenario = make_scenario(question.mapping, no_limits, data)
        if question.kind == "theory":
            from psofed.explore.theory import theory_steps

            measured = None
            if data is not None:
                from psofed.fleet.fitting import measured_scenario

                measured = self._measured(scenario)
                scenario = measured_scenario(scenario, data)
            yield from theory_steps(scenario, self._cache, measured=measured, **question.options)
            return
        from psofed.explore.simulating import simulation_steps

        def progress(done: float, total: int) -> None:
            now = time.monotonic()
            if now - self._last_report > 0.1 or done == total:
                self._last_report = now
                self._send(question, {"progress": done / total})

        yield from simulation_steps(scenario, progress=progress, data=data, **question.options)

    def _measured(self, scenario: Any) -> Any:
        """Return what the table says of the clients, kept while the model's features stay the same."""
        key = (scenario.model, scenario.dimension)
        if getattr(self, "_measured_key", None) != key:
            assert self._data is not None
            features = scenario.model.make_features(self._data.num_columns, scenario.dimension)
            self._measured_fleet, self._measured_key = self._data.fleet(features), key
        return self._measured_fleet


def _bound_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
