"""Simulated time: processes as greenlets that take turns, each machine with its own clock.

Nothing here waits. A sleeping process is put into a queue, and the clock jumps to the next one that is due. If several
are due at the same moment, the one that was put there first continues, so a run depends on its seed alone.
"""

import datetime
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from flwr.supercore.inflatable import inflatable_object
from flwr.supercore.task_identity import TaskIdentity
from greenlet import GreenletExit, getcurrent, greenlet

BEGIN = 1_800_000_000.0
"""Unix time at which every simulation begins."""


class Killed(GreenletExit):
    """Raised in a process that is killed: it ends at once, and nothing it still tries has any effect."""


@dataclass(eq=False)
class Process:
    """A process on a machine.

    Attributes
    ----------
    name : str
        For people.
    machine : Path
        Folder of the machine, which has a disk and a clock.
    must_live : bool
        Whether it is a fault if an exception ends it.
    """

    name: str
    machine: Path
    must_live: bool = True
    alive: bool = True
    failure: BaseException | None = None
    threads: list[greenlet] = field(default_factory=list)
    identity: tuple[Any, Any, Any] = (None, None, None)


class World:
    """The scheduler of a simulation, as `psofed.common.scheduler.Scheduler` describes it.

    Parameters
    ----------
    seed : int
        Of everything that happens by chance.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.steps = 0
        self.random = Random(f"world {seed}")
        self.offsets: dict[Path, float] = {}
        self.story: list[tuple[float, str]] = []
        self.nobody = Process("the world", Path("/"), must_live=False)
        self.process = self.nobody
        self._clock_of: Path | None = None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._hub = getcurrent()
        self._contexts: dict[greenlet, dict[str, Any]] = {}

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append((self.now, text))

    # --- what Scheduler promises ----------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return BEGIN + self.now + self.offsets.get(self._clock_of or self.process.machine, 0.0)

    def sleep(self, seconds: float) -> None:
        ticket = self._wake_at(self.now + max(0.0, seconds), getcurrent())
        try:
            self._yield()
        finally:
            ticket.spent = True

    def start(self, work: Callable[[], None], name: str) -> "SimulatedTask":
        return self._start(self.process, work, name)

    def event(self) -> "SimulatedEvent":
        return SimulatedEvent(self)

    def lock(self) -> "SimulatedLock":
        return SimulatedLock(self)

    def new_id(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    # --- processes ------------------------------------------------------------------------------------

    def spawn(self, process: Process, work: Callable[[], None]) -> Process:
        """Start a process."""
        self._start(process, work, process.name)
        return process

    def kill(self, process: Process) -> None:
        """End a process at once, whatever it is doing. If it is the current one, raises Killed."""
        process.alive = False
        current = getcurrent()
        for thread in list(process.threads):
            if thread is not current and not thread.dead:
                self._switch(process, thread, Killed)
        if current in process.threads:
            raise Killed

    def interrupt(self, process: Process) -> None:
        """Send a process what Ctrl-C sends: its first thread may clean up."""
        if process.alive and process.threads:
            self._switch(process, process.threads[0], KeyboardInterrupt)

    def run(self, until: Callable[[], bool], seconds: float, steps: int) -> bool:
        """Let time pass until something is true; False if it is not after `seconds` of simulated time or `steps`."""
        self._hub = getcurrent()
        while not until():
            if not self._queue or self.now > seconds or self.steps > steps:
                return False
            due, _, wake = heapq.heappop(self._queue)
            self.now = max(self.now, due)
            self.steps += 1
            wake()
        return True

    def at(self, due: float, work: Callable[[], None]) -> None:
        """Do something at a moment, outside of all processes; it must not wait."""
        heapq.heappush(self._queue, (due, next(self._order), work))

    def clock_of(self, machine: Path) -> "_ClockOf":
        """Read the clock of another machine within the block: a request is served there."""
        return _ClockOf(self, machine)

    def check_alive(self) -> None:
        """Raise Killed in a process that is dead."""
        if not self.process.alive:
            raise Killed

    def _start(self, process: Process, work: Callable[[], None], name: str) -> "SimulatedTask":
        done = self.event()

        def body() -> None:
            try:
                work()
            except (Killed, KeyboardInterrupt):
                pass
            except Exception as error:
                process.failure = process.failure or error
                self.tell(f"{process.name}: {name} ended with {type(error).__name__}: {error}")
            finally:
                process.threads.remove(thread)
                self._contexts.pop(thread, None)
                if process.alive:
                    done.set()

        thread = greenlet(body)
        process.threads.append(thread)
        self._wake_at(self.now, thread, process)
        return SimulatedTask(done)

    # --- switching ------------------------------------------------------------------------------------

    def _wake_at(self, due: float, thread: greenlet, process: Process | None = None) -> "_Ticket":
        ticket = _Ticket(self, process or self.process, thread)
        self.at(due, ticket.fire)
        return ticket

    def _yield(self) -> None:
        """Give the turn back, until somebody wakes this greenlet."""
        self.check_alive()
        self._hub.switch()
        self.check_alive()

    def _switch(self, process: Process, thread: greenlet, throw: type[BaseException] | None = None) -> None:
        """Give the turn to a greenlet, with what Flower keeps for each process and thread."""
        caller, hub = self.process, self._hub
        mine = TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id
        context = dict(inflatable_object._ctx.__dict__)
        inflatable_object._ctx.__dict__.clear()
        inflatable_object._ctx.__dict__.update(self._contexts.pop(thread, {}))
        TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = process.identity
        self.process, self._hub = process, getcurrent()
        thread.parent = getcurrent()
        try:
            thread.throw(throw) if throw else thread.switch()
        finally:
            process.identity = TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id
            if not thread.dead:
                self._contexts[thread] = dict(inflatable_object._ctx.__dict__)
            TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = mine
            inflatable_object._ctx.__dict__.clear()
            inflatable_object._ctx.__dict__.update(context)
            self.process, self._hub = caller, hub

    def date(self) -> datetime.datetime:
        """Return the current machine's date, as Flower asks for it."""
        return datetime.datetime.fromtimestamp(self.time(), datetime.UTC)


@dataclass(eq=False, slots=True)
class _ClockOf:
    """See :meth:`World.clock_of`."""

    world: World
    machine: Path | None

    def __enter__(self) -> None:
        self.world._clock_of, self.machine = self.machine, self.world._clock_of

    def __exit__(self, *error: object) -> None:
        self.world._clock_of = self.machine


@dataclass(eq=False, slots=True)
class _Ticket:
    """The right to be woken once."""

    world: World
    process: Process
    thread: greenlet
    spent: bool = False

    def fire(self) -> None:
        if not self.spent and self.process.alive and not self.thread.dead:
            self.spent = True
            self.world._switch(self.process, self.thread)


class SimulatedEvent:
    """A flag, as `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._raised = False
        self._waiting: list[_Ticket] = []

    def is_set(self) -> bool:
        return self._raised

    def set(self) -> None:
        self._world.check_alive()
        self._raised = True
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            self._world.at(self._world.now, ticket.fire)

    def clear(self) -> None:
        self._raised = False

    def wait(self, timeout: float | None = None) -> bool:
        world = self._world
        deadline = None if timeout is None else world.now + max(0.0, timeout)
        while not self._raised:
            if deadline is not None and world.now >= deadline:
                return False
            ticket = _Ticket(world, world.process, getcurrent())
            self._waiting.append(ticket)
            if deadline is not None:
                world.at(deadline, ticket.fire)
            try:
                world._yield()
            finally:
                ticket.spent = True
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
        return True


class SimulatedLock:
    """A lock, as `threading.Lock` in a with statement."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._free = SimulatedEvent(world)
        self._free._raised = True

    def __enter__(self) -> bool:
        while not self._free.is_set():
            self._free.wait()
        self._free.clear()
        return True

    def __exit__(self, *error: object) -> None:
        if self._world.process.alive:
            self._free.set()


class SimulatedTask:
    """Work that was started."""

    def __init__(self, done: SimulatedEvent) -> None:
        self._done = done

    def wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)
