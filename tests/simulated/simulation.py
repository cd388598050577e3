"""A whole federation in one process: server, nodes, broker, clocks, disks and network, from one seed."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
from hostile import forge, spoil, spoil_client
from plans import BAD_CLIENTS, BAD_REPLIES, CHURN, HOSTILE, QUIET, Incident, Plan
from promises import Promises
from simulated_broker import IN, SERVER, Broker, Line, SimulatedHub, SimulatedLink, Violation
from simulated_disk import SimulatedDisk
from simulated_federation import DIMENSION, MAX_CLIENTS, expected_models, learner_of, server_of, silence
from simulated_time import Process, World

from psofed.common.disk import use_disk
from psofed.common.errors import PsofedError
from psofed.common.scheduler import use_scheduler
from psofed.federation.client.gateway import Gateway, TrainingRequest, TrainingResult
from psofed.federation.client.node import Node, serve
from psofed.federation.server import exchange
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.loop import Server

MACHINE = Path("/server")
CHECKPOINT = MACHINE / "home" / "checkpoint.npz"
_FURTHEST_CLOCK = 7200.0  # seconds from the true time
_LONGEST = 60.0  # simulated seconds for each round, on average
_MOST_STEPS = 5_000  # for each round, on average
_REMEMBERED = 1000  # frames of each node, for old instructions and for promises


class Finding(Exception):  # noqa: N818 - a result
    """A broken promise; `simulation` has the story that led to it."""

    def __init__(self, text: str, simulation: "Simulation") -> None:
        super().__init__(text)
        self.simulation = simulation


class Simulation:
    """One run of a plan.

    Parameters
    ----------
    plan : Plan
        What happens.
    expected : mapping, optional
        The model after each round of a run in which nothing happens, if the two must be equal.
    """

    def __init__(self, plan: Plan, expected: dict[int, bytes] | None = None) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        self.disk = SimulatedDisk(self._before_operation, self.world.time)
        self.disk.full = lambda path: any(machine in path.parents for machine in self.full)
        self.full: Counter[Path] = Counter()
        self.faults: Counter[str] = Counter()
        self.happened: list[Incident] = []
        self.finished = False
        self.history: list[dict[str, Any]] = []
        self.broker = Broker(self.world)
        self.line = Line(Random(f"server {plan.seed}"), lambda: 0.0005)
        self.app = Process("server", MACHINE, alive=False)
        self.hub: SimulatedHub | None = None
        self.server: Server | None = None
        self.questions: list[Any] = []
        self.frames: dict[int, bytes] = {}
        self.round_number = 0
        self.round_began = 0.0
        self.quiet_until = 0.0
        self.attended = 0.0
        self.stop_asked: float | None = None
        self.revoked: set[str] = set()
        self._operations_left = -1
        self._power = False
        self._kill_before_link = False
        self._rollback: float | None = None
        self._due = list(plan.incidents)
        self.nodes = {name: NodeActor(self, name) for name in plan.nodes}
        self.promises = Promises(self, expected)

    @property
    def models(self) -> dict[int, bytes]:
        """The model after each round."""
        return {number: model for (_, number), model in self.promises.models.items()}

    def run(self) -> "Simulation":
        """Run it; a Finding says which promise was broken."""
        with ExitStack() as stack:
            stack.enter_context(silence())
            stack.enter_context(use_disk(self.disk))  # type: ignore[arg-type]
            stack.enter_context(use_scheduler(self.world))  # type: ignore[arg-type]
            stack.enter_context(patch("psofed.federation.server.loop.exchange", self._exchange))
            supervisor = Process("supervisor", MACHINE)
            try:
                for node in self.nodes.values():
                    node.start()
                self.world.spawn(supervisor, self._supervise)
                rounds = self.plan.all_rounds + 20
                ended = self.world.run(
                    lambda: self.finished or supervisor.failure is not None, _LONGEST * rounds, _MOST_STEPS * rounds
                )
                if supervisor.failure is not None:
                    raise supervisor.failure
                if not ended:
                    raise Violation(f"progress: after {self.world.now:.0f} s only {self.promises.completed} rounds")
                self.promises.check_end()
            except Violation as violation:
                raise Finding(str(violation), self) from violation
            finally:
                for process in [supervisor, self.app, *(node.process for node in self.nodes.values())]:
                    self.world.kill(process)
        return self

    # --- the server -----------------------------------------------------------------------------------

    def _supervise(self) -> None:
        """Start the server again whenever it has ended, as systemd does."""
        while not self.finished:
            self.promises.check_disk()
            if self._rollback is not None:
                self._roll_back()
                self.promises.check_disk()
            self.app, self.stop_asked = Process("server", MACHINE), None
            self._run_app(self._serve, 0.25)
            if isinstance(self.app.failure, PsofedError) and "another server" in str(self.app.failure):
                self.app.failure = None
            self.promises.check_server(self.app.failure)
            if not self.finished:
                self.world.sleep(1.0)

    def _run_app(self, work: Callable[[], None], look_every: float) -> None:
        self.world.spawn(self.app, work)
        while self.app.is_running:
            self.world.sleep(look_every)
            self.promises.check_processes()
        if isinstance(self.app.failure, Violation):
            raise self.app.failure

    def _serve(self) -> None:
        plan = self.plan
        self.attended = self.world.now
        self.hub = SimulatedHub(self.broker, self.line)
        server = self.server = server_of(
            plan,
            self.promises.check_round,
            checkpoint=CHECKPOINT,
            resume=self.disk.exists(CHECKPOINT),
            attend=self._attend,
        )
        take = server._attendance.take

        def take_attendance(hub: Any, session: str, number: int, *rest: Any) -> Any:
            if number == plan.rounds + 1:
                self._calm_down()
            clients = take(hub, session, number, *rest)
            self._begin_round(number)
            return clients

        server._attendance.take = take_attendance  # type: ignore[method-assign]
        server.run(self.hub, {"0": np.zeros(DIMENSION)}, plan.all_rounds, plan.deadline)
        self.hub.close()
        self.finished = not server.was_stopped

    def _attend(self) -> bool:
        assert self.hub is not None
        self.promises.check_attended()
        if self.broker.revoked != self.revoked:
            self.hub.revoke(self.revoked)
        return self.stop_asked is not None

    def _exchange(self, hub: Any, questions: list[Any], *rest: Any) -> dict[int, bytes]:
        if self.world.process is not self.app:
            return exchange.exchange(hub, questions, *rest)
        self.questions = questions
        self.frames = exchange.exchange(hub, questions, *rest)
        return self.frames

    def _begin_round(self, number: int) -> None:
        self.round_number, self.round_began = number, self.world.now
        while self._due and self._due[0].round_number <= number:
            incident = self._due.pop(0)
            self.world.at(self.world.now + incident.after, lambda incident=incident: self._happen(incident))

    def _calm_down(self) -> None:
        """Let nothing else happen, and wait until what has happened is over."""
        self._operations_left, self._kill_before_link = -1, False
        self.attended = self.quiet_until = self.world.now + QUIET
        self.world.sleep(QUIET)

    def _roll_back(self) -> None:
        """Go back to an earlier round, as the operator's command does; that, too, can be cut short."""
        random, self._rollback = Random(f"rollback {self.plan.seed} {self._rollback}"), None
        accident = random.choice(("", "full disk", "kill", "power loss"))
        self.app = Process("rollback", MACHINE)
        if accident == "full disk":
            self.full[MACHINE] += 1
        elif accident:
            self._plan_kill(random.randint(0, 12), accident == "power loss")
        self._run_app(lambda: self._roll_back_to(random.random()), 0.1)
        self._operations_left = -1
        self.full[MACHINE] -= accident == "full disk"
        self.full = +self.full

    def _roll_back_to(self, where: float) -> None:
        store = CheckpointStore(CHECKPOINT)
        kept = store.rounds()
        if not kept:
            return
        number = kept[-1] if where < 0.7 else kept[int((where - 0.7) / 0.3 * len(kept))]
        self.world.tell(f"the operator rolls back to round {number}")
        self.promises.rolling_back(number)
        try:
            store.rollback(number)
        except PsofedError as error:
            self.world.tell(f"the rollback failed: {error}")

    # --- incidents ------------------------------------------------------------------------------------

    def _happen(self, incident: Incident) -> None:
        if self.finished:
            return
        self.faults[incident.kind] += 1
        self.happened.append(incident)
        self.world.tell(f"round {self.round_number}: {incident.sentence}")
        node, amount = self.nodes[incident.who], incident.amount
        seconds = 0.5 + 20.0 * amount
        actions: dict[str, Callable[[], None]] = {
            "kill server": self._kill_app,
            "power loss": lambda: self._crash(True),
            "kill at file operation": lambda: self._plan_kill(int(40 * amount), False),
            "power loss at file operation": lambda: self._plan_kill(int(40 * amount), True),
            "full disk": lambda: self._fill(MACHINE, seconds / 4),
            "rollback": lambda: self._plan_rollback(amount),
            "stop": self._stop,
            "server clock": lambda: self._jump(MACHINE, 7200.0 * (amount - 0.5)),
            "server connection lost": lambda: self._cut(SERVER, amount),
            "broker restart": lambda: self.broker.restart(seconds / 4),
            "second server": lambda: self._start_second(seconds / 2),
            "kill node": lambda: node.stop(False, seconds),
            "node power loss": lambda: node.stop(True, seconds),
            "node leaves": lambda: node.leave(seconds),
            "node disk full": lambda: self._fill(node.machine, seconds, node),
            "node clock": lambda: self._jump(node.machine, 7200.0 * (amount - 0.5)),
            "node started twice": lambda: node.start_twin(seconds),
            "connection lost": lambda: self._cut(incident.who, amount),
            "unreachable": lambda: [node.set(seconds, down=True), self._cut(incident.who, 0.0)][0],
            "slow": lambda: node.set(seconds, pause=self.plan.deadline * amount),
            "silent": lambda: node.set(seconds, pause=3.0 * self.plan.deadline),
            "training fails": lambda: node.set(seconds, fails=True),
            "messages lost": lambda: node.set(seconds, lost=0.2 * amount),
            "messages doubled": lambda: node.set(seconds, doubled=0.5 * amount),
            "long delays": lambda: node.set(seconds, delay=(0.02 if self.plan.exact else 0.3) * amount),
            "old instruction": lambda: node.hear(*node.heard[int(amount * len(node.heard)) :][:1]),
            "misdelivery": lambda: self.broker.misdelivered.update({self._other(incident.who): node.hear}),
            "nonsense": lambda: node.hear(node.random.randbytes(int(60 * amount))),
            "client leaves": lambda: node.set(seconds, gone=True),
            "client claimed": lambda: node.set(seconds, claims=True),
            "one client fails": lambda: node.set(seconds, one_fails=True),
            CHURN: lambda: node.set(3.0 * seconds, churns=True),
            "revoke": lambda: self.promises.revoke(incident.who),
        }
        if incident.kind not in HOSTILE:
            actions[incident.kind]()
        elif node.heard and node.process.is_running and incident.who in self.broker.connections:
            asked = {q.node: q.sequence for q in self.questions if q.node in self.plan.honest}
            if asked:
                forge(incident.kind, self.broker, incident.who, asked, node.heard[-1], node.sent, node.random)

    def _other(self, name: str) -> str:
        return self.plan.honest[name == self.plan.honest[0]]

    def _cut(self, name: str, amount: float) -> None:
        """End a connection; the broker may notice late."""
        if (connection := self.broker.connections.get(name)) is not None:
            self.broker.end(connection, unnoticed=5.0 if amount > 0.5 else 0.0)

    def drop(self, process: Process, unnoticed: float = 0.0) -> None:
        """End the connection of a process that was killed."""
        for connection in list(self.broker.connections.values()):
            if connection.endpoint.process is process:
                self.broker.end(connection, unnoticed=unnoticed)

    def _kill_app(self) -> None:
        if self.app.is_running:
            self.app.alive = False
            self.drop(self.app)
            self.world.kill(self.app)

    def _crash(self, power: bool) -> None:
        """Let the server's machine go down, with the broker."""
        self.broker.restart(1.0)
        if power:
            self.disk.lose_power(MACHINE, Random(f"power {self.plan.seed} {self.world.steps}"))
        self._kill_app()

    def _stop(self) -> None:
        if self.app.is_running and self.app.name == "server":
            self.stop_asked = self.world.now

    def _plan_rollback(self, amount: float) -> None:
        """Let the operator roll back as soon as the server has ended: now, or between two file operations."""
        self._rollback = amount
        if amount < 0.2:
            self._stop()
        elif amount < 0.6:
            self._plan_kill(int(40 * (amount - 0.2)), False)
        else:  # when a checkpoint is written and not yet the newest
            self._kill_before_link = True

    def _plan_kill(self, operations: int, power: bool) -> None:
        self._operations_left, self._power = operations, power

    def _before_operation(self, operation: str, path: Path) -> None:
        self.world.check_alive()
        if self.world.process is not self.app:
            return
        due = self._kill_before_link and operation == "link"
        if self._operations_left >= 0:
            self._operations_left -= 1
            due = due or self._operations_left < 0
        if due:
            self._kill_before_link = False
            self.world.tell(f"the {self.app.name} is killed before it can {operation} {path.name}")
            self._crash(True) if self._power else self._kill_app()

    def _fill(self, machine: Path, seconds: float, node: "NodeActor | None" = None) -> None:
        self.full[machine] += 1
        if node is not None:
            node.set(seconds, full=True)

        def empty() -> None:
            self.full[machine] -= 1
            self.full = +self.full

        self.world.at(self.world.now + seconds, empty)

    def _jump(self, machine: Path, seconds: float) -> None:
        offset = self.world.offsets.get(machine, 0.0) + seconds
        self.world.offsets[machine] = max(-_FURTHEST_CLOCK, min(_FURTHEST_CLOCK, offset))

    def _start_second(self, seconds: float) -> None:
        """Start a server that knows nothing of the first one, and end it after a while."""
        process = Process("second server", Path("/second"))

        def work() -> None:
            hub = SimulatedHub(self.broker, self.line)
            server = server_of(self.plan, lambda state: None)
            server.run(hub, {"0": np.ones(DIMENSION)}, 0, self.plan.deadline)

        def end() -> None:
            process.alive = False
            self.drop(process)
            self.world.kill(process)

        self.world.spawn(process, work)
        self.world.at(self.world.now + seconds, end)


class NodeActor:
    """One node: its machine, its process, and what is wrong with it at the moment.

    Attributes
    ----------
    heard, sent : list of bytes
        The latest instructions that it has answered, and its replies.
    disturbed_until : float
        From then on nothing is wrong with it.
    """

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation, self.world, self.name = simulation, simulation.world, name
        self.machine = Path("/") / name
        self.random = Random(f"{name} {simulation.plan.seed}")
        self.latency = self.random.uniform(0.001, 0.02)
        self.line = Line(self.random, self._delay, self._accident, lambda: self.wrong("down", False))
        self.process = Process(name, self.machine, alive=False)
        self.link: SimulatedLink | None = None
        self.ended = self.world.event()
        self.heard: list[bytes] = []
        self.sent: list[bytes] = []
        self.disturbed_until = 0.0
        self.has_twin = False
        self._wrong: dict[str, tuple[float, Any]] = {}
        self._learner = learner_of(simulation.plan, name)

    def start(self) -> None:
        """Start the process."""
        self.process, self.ended = Process(self.name, self.machine), self.world.event()
        self.disturbed_until = max(self.disturbed_until, self.world.now)
        self.world.spawn(self.process, lambda: self._run(self.machine, self.ended))

    def _run(self, machine: Path, ended: Any) -> None:
        link = SimulatedLink(self.simulation.broker, self.name, self.line)
        if machine == self.machine:
            self.link = link
        serve(_SimulatedNode(self, machine / "state"), link, ended)

    def prepare(self, run: Any) -> Gateway:
        """Return how the node answers."""
        clients = self._clients if self.simulation.plan.clients_of(self.name) else None
        return Gateway(self._learn, catch_up=True, clients=clients)

    def answer(self, frame: bytes, work: Callable[[bytes], bytes | None]) -> bytes | None:
        """Answer an instruction after some time, with a lie if that is this node's part."""
        pause = self.random.uniform(0.0, 0.01) + self.wrong("pause", 0.0)
        self.disturbed_until = max(self.disturbed_until, self.world.now + pause)
        self.world.sleep(pause)
        reply = work(frame)
        if reply is None:
            return None
        if self.name in self.simulation.plan.byzantine and self.random.random() < 0.3:
            reply = spoil(self.random.choice(BAD_REPLIES), reply)
        elif self.random.random() < 0.3:
            reply = spoil_client(self.random.choice(BAD_CLIENTS), reply)
        for kept, new in ((self.heard, frame), (self.sent, reply)):
            kept.append(new)
            del kept[:-_REMEMBERED]
        return reply

    def _clients(self) -> list[str]:
        """Return the clients of this gateway, as they are at the moment."""
        plan = self.simulation.plan
        names = list(plan.clients_of(self.name))
        if self.wrong("churns", False):
            names = [f"{self.name}.{self.random.getrandbits(64):x}" for _ in range(MAX_CLIENTS + 1)]
        if self.wrong("gone", False):
            names = names[1:]
        if self.wrong("claims", False):
            names += [name for node, others in plan.clients if node != self.name for name in others[:1]]
        return names

    def _learn(self, request: TrainingRequest) -> TrainingResult:
        if self.wrong("fails", False) or (self.wrong("one_fails", False) and request.client.endswith(".1")):
            raise RuntimeError("training failed")
        return self._learner.learn(request)

    # --- what goes wrong ------------------------------------------------------------------------------

    def set(self, seconds: float, **wrong: Any) -> None:
        """Let something be wrong for a while."""
        for name, value in wrong.items():
            self._wrong[name] = (self.world.now + seconds, value)
        self.disturbed_until = max(self.disturbed_until, self.world.now + seconds)

    def wrong(self, name: str, otherwise: Any) -> Any:
        """Return what is wrong at the moment."""
        until, value = self._wrong.get(name, (0.0, otherwise))
        return value if self.world.now < until else otherwise

    def _delay(self) -> float:
        return self.random.expovariate(1.0 / (self.latency + self.wrong("delay", 0.0)))

    def _accident(self) -> str:
        draw, lost = self.random.random(), self.wrong("lost", 0.0)
        accident = "lost" if draw < lost else "doubled" if draw < lost + self.wrong("doubled", 0.0) else ""
        if accident:
            self.simulation.faults[f"a message {accident}"] += 1
        return accident

    def hear(self, *frames: bytes) -> None:
        """Let frames arrive as instructions."""
        if self.link is not None and self.link.is_connected:
            for frame in frames:
                self.link.arrive((IN, self.name), frame)

    def stop(self, power: bool, seconds: float) -> None:
        """Kill the process, and start it again after a while."""
        if not self.process.is_running or self.ended.is_set():
            return
        self.process.alive = False
        self.simulation.drop(self.process, unnoticed=5.0 if power else 0.0)
        self.world.kill(self.process)
        if power:
            self.simulation.disk.lose_power(self.machine, self.random)
        self.world.at(self.world.now + seconds, self.start)

    def leave(self, seconds: float) -> None:
        """Let the process end by itself, and start it again after a while."""
        if self.process.is_running and not self.ended.is_set():
            self.ended.set()
            self._return_after(seconds)

    def _return_after(self, seconds: float) -> None:
        def again() -> None:
            if self.process.is_running:  # it is busy with an instruction
                self._return_after(1.0)
            else:
                self.start()

        self.world.at(self.world.now + seconds, again)

    def start_twin(self, seconds: float) -> None:
        """Start a second process with the same name on another machine, and end it after a while."""
        self.has_twin = True
        machine = Path("/") / f"{self.name}-twin"
        twin, ended = Process(f"{self.name}'s twin", machine), self.world.event()
        self.world.spawn(twin, lambda: self._run(machine, ended))
        self.world.at(self.world.now + seconds, ended.set)


class _SimulatedNode(Node):
    """A node that takes time."""

    def __init__(self, actor: NodeActor, folder: Path) -> None:
        super().__init__(actor.name, actor.prepare, folder)
        self._actor = actor

    def answer(self, frame: bytes) -> bytes | None:
        """Answer as a node does."""
        return self._actor.answer(frame, super().answer)


def simulate(plan: Plan, expected: dict[int, bytes] | None = None) -> Simulation:
    """Run a plan; one that is exact is compared with `expected`, by default a run of it without incidents."""
    if plan.exact and plan.incidents and expected is None:
        expected = expected_models(plan)
    return Simulation(plan, expected).run()
