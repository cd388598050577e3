"""Simulated time: processes as greenlets that take turns, each machine with its own clock.

Nothing here waits. A sleeping process is put into a queue, and the clock jumps to the next one that is due. If several
are due at the same moment, the one that was put there first continues, so a run depends on its seed alone.
"""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from greenlet import GreenletExit, getcurrent, greenlet

BEGIN = 1_800_000_000.0
"""Unix time at which every simulation begins."""


class Killed(GreenletExit):
    """Raised in a process that is killed: it ends at once, and nothing it still tries has any effect."""


@dataclass(eq=False)
class Process:
    """A process on a machine, whose folder says which disk and clock it has."""

    name: str
    machine: Path
    alive: bool = True
    failure: BaseException | None = None
    thread: greenlet | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has neither ended nor been killed."""
        return self.alive and self.thread is not None and not self.thread.dead


class World:
    """The scheduler of a simulation, as `psofed.common.scheduler.Scheduler` describes it.

    Parameters
    ----------
    seed : int
        Of everything that happens by chance.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.steps = 0
        self.random = Random(f"world {seed}")
        self.offsets: dict[Path, float] = {}
        self.story: list[tuple[float, str]] = []
        self.process = Process("the world", Path("/"))
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._main = getcurrent()

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append((self.now, text))

    # --- what Scheduler promises ----------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return BEGIN + self.now + self.offsets.get(self.process.machine, 0.0)

    def sleep(self, seconds: float) -> None:
        SimulatedEvent(self).wait(seconds)

    def event(self) -> "SimulatedEvent":
        return SimulatedEvent(self)

    def new_id(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    # --- processes ------------------------------------------------------------------------------------

    def spawn(self, process: Process, work: Callable[[], None]) -> None:
        """Start a process."""

        def body() -> None:
            try:
                work()
            except Killed:
                pass
            except Exception as error:
                process.failure = error
                self.tell(f"{process.name} ended with {type(error).__name__}: {error}")

        process.thread = greenlet(body)
        self.at(self.now, _Ticket(self, process, process.thread).fire)

    def kill(self, process: Process) -> None:
        """End a process at once, whatever it is doing. If it is the current one, raises Killed."""
        process.alive = False
        if process.thread is getcurrent():
            raise Killed
        if process.thread and not process.thread.dead:
            self._switch(process, process.thread, Killed)

    def run(self, until: Callable[[], bool], seconds: float, steps: int) -> bool:
        """Let time pass until something is true; False if it is not after `seconds` of simulated time or `steps`."""
        self._main = getcurrent()
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

    def check_alive(self) -> None:
        """Raise Killed in a process that is dead."""
        if not self.process.alive:
            raise Killed

    def give_turn(self) -> None:
        """Give the turn back, until somebody wakes this greenlet."""
        self.check_alive()
        self._main.switch()
        self.check_alive()

    def _switch(self, process: Process, thread: greenlet, throw: type[BaseException] | None = None) -> None:
        caller, main = self.process, self._main
        self.process, self._main = process, getcurrent()
        thread.parent = getcurrent()
        try:
            thread.throw(throw) if throw else thread.switch()
        finally:
            self.process, self._main = caller, main


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
    """A flag, as `threading.Event`, that one process waits for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._raised = False
        self._waiting: _Ticket | None = None

    def is_set(self) -> bool:
        return self._raised

    def set(self) -> None:
        self._raised = True
        if self._waiting is not None:
            self._world.at(self._world.now, self._waiting.fire)

    def clear(self) -> None:
        self._raised = False

    def wait(self, seconds: float) -> bool:
        world = self._world
        deadline = world.now + max(0.0, seconds)
        while not self._raised:
            ticket = self._waiting = _Ticket(world, world.process, getcurrent())
            world.at(deadline, ticket.fire)
            try:
                world.give_turn()
            finally:
                ticket.spent, self._waiting = True, None
            if world.now >= deadline:
                break
        return self._raised
