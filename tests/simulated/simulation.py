"""A whole federation in one process: server, nodes, clocks, disks and network, from one seed."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from hostile import Hands
from plans import BAD_CLIENTS, BAD_REPLIES, CHURN, HOSTILE, LYING, QUIET, Incident, Plan
from promises import LIMITS, Promises
from simulated_disk import SimulatedDisk
from simulated_federation import DIMENSION, expected_models, key_of, learner_of, silence, strategy_of
from simulated_link import SERVER, FleetClient, Link, Violation, simulated_flower
from simulated_time import Process, World

from psofed.common.disk import use_disk
from psofed.common.errors import PsofedError
from psofed.common.scheduler import use_scheduler
from psofed.federation.client.gateway import Gateway, Learned, Lesson
from psofed.federation.client.sharing import state_folder
from psofed.federation.deploy.node import LongLivedNode
from psofed.federation.flower import identify, number_of_key
from psofed.federation.flower.signing import TimeSigner
from psofed.federation.protocol.answers import LEARNED
from psofed.federation.protocol.wire import SETTINGS
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.exchange import MessageExchange

CHECKPOINT = SERVER / "home" / "checkpoint.npz"
_FURTHEST_CLOCK = 250.0  # seconds from the true time; a node follows the server's clock within 900
_LONGEST = 60.0  # simulated seconds for each round, on average
_MOST_STEPS = 5_000  # for each round, on average


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
        self.disk = SimulatedDisk(self._before_operation, self.world.monotonic)
        self.disk.full = lambda path: any(machine in path.parents for machine in self.full)
        self.full: dict[Path, int] = {}
        self.faults: Counter[str] = Counter()
        self.happened: list[Incident] = []
        self.finished = False
        self.history: list[dict[str, Any]] = []
        self.app: Process | None = None
        self.round_number = 0
        self.round_began = 0.0
        self.undisturbed = True
        self._operations_left = -1
        self._power = False
        self._kill_before_link = False
        self._rollback: float | None = None
        self._due = list(plan.incidents)
        self.link = Link(self.world, {name: key_of(name)[1] for name in plan.nodes})
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
            stack.enter_context(use_disk(self.disk))
            stack.enter_context(use_scheduler(self.world))
            stack.enter_context(simulated_flower(self.world, self.link))
            stack.enter_context(patch("psofed.federation.flower.fleet.open_client", self._open_client))
            stack.enter_context(patch("psofed.federation.flower.fleet.bound_answers", lambda client: None))
            # There is nothing to learn between rounds: samples are counted out by round.
            stack.enter_context(patch("psofed.federation.deploy.node._LEARN_EVERY", 5.0))
            supervisor = Process("supervisor", SERVER)
            self.link.restart()  # Flower draws the nodes' ids, now from the simulation
            try:
                for node in self.nodes.values():
                    node.start()
                self.world.spawn(supervisor, self._supervise)
                rounds = self.plan.all_rounds + 20
                ended = self.world.run(
                    lambda: self.finished or supervisor.failure is not None,
                    _LONGEST * rounds,
                    _MOST_STEPS * rounds,
                )
                if supervisor.failure is not None:
                    raise supervisor.failure
                if not ended:
                    raise Violation(
                        f"progress: after {self.world.now:.0f} s only {self.promises.completed} rounds"
                    )
                self.promises.check_end()
            except Violation as violation:
                raise Finding(str(violation), self) from violation
            finally:
                for process in [supervisor, self.app, *(node.process for node in self.nodes.values())]:
                    if process is not None and process.alive:
                        self.world.kill(process)
        return self

    # --- the server -----------------------------------------------------------------------------------

    def _supervise(self) -> None:
        """Start the ServerApp again whenever it has ended, as the server's supervisor does."""
        while not self.finished:
            if not self.link.up:
                self.world.sleep(1.0)
                self.link.restart()
                self.world.tell("the server's machine is up again")
            self.promises.check_disk()
            if self._rollback is not None:
                self._roll_back()
                if isinstance(self.app and self.app.failure, Violation):
                    raise self.app.failure
                self.promises.check_disk()
            self.app = Process("ServerApp", SERVER, must_live=False)
            self.world.spawn(self.app, self._serve)
            beats = 0
            while self.app.threads and self.app.alive:
                self.world.sleep(0.25)
                beats += 1
                if beats % 20 == 0 and self.link.up and self.link.task is not None:
                    with self.world.clock_of(SERVER):
                        self.link.state.acknowledge_task_heartbeat(self.link.task.task_id)
                self.promises.check_processes()
            failure = self.app.failure
            if isinstance(failure, Violation):
                raise failure
            if failure is not None:
                self.promises.check_failure(failure)
            self.link.end_run()
            if not self.finished:
                self.undisturbed = False
                self.world.sleep(1.0)

    def _serve(self) -> None:
        grid = self.link.start_run()
        self.link.bell.is_connected = self.plan.bell
        identify(grid.run.run_id, 1)
        plan = self.plan
        strategy = strategy_of(
            plan, self.promises.check_round, checkpoint=CHECKPOINT, resume=self.disk.exists(CHECKPOINT)
        )
        strategy._exchange = MessageExchange(self.link.bell)  # type: ignore[arg-type]
        begin = strategy.configure_train

        def configure_train(server_round: int, *rest: Any) -> Any:
            if server_round == plan.rounds + 1:
                self._calm_down()
            messages = begin(server_round, *rest)
            self._begin_round(server_round)
            return messages

        strategy.configure_train = configure_train  # type: ignore[method-assign]
        strategy.start(grid, np.zeros(DIMENSION), num_rounds=plan.all_rounds, timeout=plan.deadline)
        self.finished = True

    def _begin_round(self, number: int) -> None:
        self.round_number, self.round_began = number, self.world.now
        self.promises.safe = number - 1
        while self._due and self._due[0].round_number <= number:
            incident = self._due.pop(0)
            self.world.at(self.world.now + incident.after, lambda incident=incident: self._happen(incident))

    def _calm_down(self) -> None:
        """Let nothing else happen, and wait until what has happened is over."""
        self._operations_left, self._kill_before_link = -1, False
        self.world.sleep(QUIET)

    def _roll_back(self) -> None:
        """Go back to an earlier round, as the operator's command does; that, too, can be cut short."""
        random, self._rollback = Random(f"rollback {self.plan.seed} {self._rollback}"), None
        accident = random.choice(("", "full disk", "kill", "power loss"))
        self.app = Process("rollback", SERVER, must_live=False)
        if accident == "full disk":
            self.full[SERVER] = self.full.get(SERVER, 0) + 1
        elif accident:
            self._plan_kill(random.randint(0, 12), accident == "power loss")
        self.world.spawn(self.app, lambda: self._roll_back_to(random.random()))
        while self.app.threads and self.app.alive:
            self.world.sleep(0.1)
        self._operations_left = -1
        if accident == "full disk":
            self._empty(SERVER)

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
            "kill app": self._kill_app,
            "kill server": lambda: self._crash(False),
            "power loss": lambda: self._crash(True),
            "kill at file operation": lambda: self._plan_kill(int(40 * amount), False),
            "power loss at file operation": lambda: self._plan_kill(int(40 * amount), True),
            "full disk": lambda: self._fill(SERVER, seconds / 4),
            "rollback": lambda: self._plan_rollback(amount),
            "server clock": lambda: self._jump(SERVER, 240.0 * (amount - 0.5)),
            "node clock": lambda: self._jump(node.machine, 240.0 * (amount - 0.5)),
            "kill node": lambda: node.stop(False, seconds),
            "node power loss": lambda: node.stop(True, seconds),
            "node leaves": lambda: node.leave(seconds),
            "node disk full": lambda: self._fill(node.machine, seconds),
            "slow": lambda: node.set(seconds, pause=self.plan.deadline * amount),
            "silent": lambda: node.set(seconds, pause=3.0 * self.plan.deadline),
            "training fails": lambda: node.set(seconds, fails=True),
            "requests lost": lambda: node.set(seconds, lost=0.2 * amount),
            "answers lost": lambda: node.set(seconds, unanswered=0.2 * amount),
            "requests doubled": lambda: node.set(seconds, doubled=0.5 * amount),
            "long delays": lambda: node.set(seconds, delay=(0.02 if self.plan.exact else 0.3) * amount),
            "client leaves": lambda: node.set(seconds, gone=True),
            "client claimed": lambda: node.set(seconds, claims=True),
            "one client fails": lambda: node.set(seconds, one_fails=True),
            CHURN: lambda: node.set(3.0 * seconds, churns=True),
            "revoke": lambda: self._revoke(incident.who),
            "misdelivery": lambda: self._misdeliver(incident.who),
        }
        if incident.kind in HOSTILE:
            node.forge(incident)
        else:
            actions[incident.kind]()

    def _kill_app(self) -> None:
        self.undisturbed = False
        if self.app is not None and self.app.alive:
            self.world.kill(self.app)

    def _crash(self, power: bool) -> None:
        """Let the server's machine go down: SuperLink, front door and ServerApp."""
        self.link.up = False
        for events in self.link.bell._held.values():
            for event in events:
                event._raised = True
                for ticket in event._waiting:
                    self.world.at(self.world.now, ticket.fire)
        if power:
            self.disk.lose_power(SERVER, Random(f"power {self.plan.seed} {self.world.steps}"))
        self._kill_app()

    def _plan_rollback(self, amount: float) -> None:
        """Let the operator roll back as soon as the ServerApp has ended: now, or between two file operations."""
        self._rollback = amount
        if amount < 0.2:
            self._kill_app()
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
            self._crash(self._power) if self._power else self._kill_app()

    def _fill(self, machine: Path, seconds: float) -> None:
        self.full[machine] = self.full.get(machine, 0) + 1
        self.undisturbed = False

        self.world.at(self.world.now + seconds, lambda: self._empty(machine))

    def _empty(self, machine: Path) -> None:
        self.full[machine] -= 1
        if not self.full[machine]:
            del self.full[machine]

    def _jump(self, machine: Path, seconds: float) -> None:
        offset = self.world.offsets.get(machine, 0.0) + seconds
        self.world.offsets[machine] = max(-_FURTHEST_CLOCK, min(_FURTHEST_CLOCK, offset))

    def _misdeliver(self, name: str) -> None:
        other = self.nodes[self.plan.honest[name == self.plan.honest[0]]]
        self.link.misdelivery = self.nodes[name].public_key, other.public_key

    def _revoke(self, name: str) -> None:
        if name in self.link.keys:
            self.link.revoke(name)
            self.promises.revoked[name] = self.world.now
            self.nodes[name].process.must_live = False

    def _open_client(self, kind: Any, server: str, authority: Path, interceptors: list[Any]) -> FleetClient:
        return self.nodes[self.world.process.name].open_client(interceptors[-1])


class NodeActor:
    """One node: its machine, its process, and what is wrong with it at the moment."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation, self.world, self.name = simulation, simulation.world, name
        self.machine = Path("/") / name
        self.random = Random(f"{name} {simulation.plan.seed}")
        self.latency = self.random.uniform(0.001, 0.02)
        self.key_file, self.public_key = key_of(name)
        self.process = Process(name, self.machine)
        self.node: LongLivedNode | None = None
        self.heard: Any = None
        self.instruction: RecordDict | None = None
        self.sent: list[tuple[str, bytes]] = []
        self._wrong: dict[str, tuple[float, Any]] = {}
        self._leaving = False
        plan = simulation.plan
        self._train = learner_of(plan, name)
        self._gateway = Gateway(
            catch_up=True, columns=self._train, clients=self._clients if plan.clients_of(name) else None
        )

    def start(self) -> None:
        """Start the process."""
        self.process = Process(self.name, self.machine, must_live=self.name in self.simulation.link.keys)
        self.world.spawn(self.process, self._run)

    def _run(self) -> None:
        self.node = LongLivedNode(
            "server:443", self.key_file, self.key_file, self.machine, {"psofed-state": str(self.machine / "state")},
            self, self._say,
        )  # fmt: skip
        self.node.run()

    def _say(self, line: str) -> None:
        if "connected to" not in line and "connecting again" not in line and "reached" not in line:
            self.world.tell(f"{self.name} says: {line}")

    # --- the app --------------------------------------------------------------------------------------

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message, as the ready-made app does."""
        self.instruction = message.content
        self.world.sleep(self.random.uniform(0.0, 0.01) + self.wrong("pause", 0.0))
        if self.wrong("fails", False):
            raise RuntimeError("training failed")
        content = self._gateway.answer(
            message.content, context, state_folder(context), self._learn, evaluates=False
        )
        reply = Message(content, reply_to=message)
        if self.name in self.simulation.plan.byzantine and self.random.random() < 0.3:
            return spoil(self.random.choice(BAD_REPLIES), reply)
        if self.random.random() < 0.3:
            return spoil_client(self.random.choice(BAD_CLIENTS), reply)
        return reply

    def _clients(self) -> list[str]:
        """Return the clients of this gateway, as they are at the moment."""
        plan = self.simulation.plan
        names = list(plan.clients_of(self.name))
        if self.wrong("churns", False):
            names = [f"{self.name}.{self.random.getrandbits(64):x}" for _ in range(LIMITS.max_clients + 1)]
        if self.wrong("gone", False):
            names = names[1:]
        if self.wrong("claims", False):
            names += [name for node, others in plan.clients if node != self.name for name in others[:1]]
        return names

    def _learn(self, lesson: Lesson) -> Learned:
        if self.wrong("one_fails", False) and lesson.client.endswith(".1"):
            raise RuntimeError("training failed")
        return self._train.learn(lesson)

    def learn_arrived(self, context: Context) -> int:
        """Learn nothing: samples are counted out by round."""
        return 0

    # --- what goes wrong ------------------------------------------------------------------------------

    def set(self, seconds: float, **wrong: Any) -> None:
        """Let something be wrong for a while."""
        for name, value in wrong.items():
            self._wrong[name] = (self.world.now + seconds, value)

    def wrong(self, name: str, otherwise: Any) -> Any:
        """Return what is wrong at the moment."""
        until, value = self._wrong.get(name, (0.0, otherwise))
        return value if self.world.now < until else otherwise

    def _here(self) -> bool:
        return self.process.alive and bool(self.process.threads) and not self._leaving

    def stop(self, power: bool, seconds: float) -> None:
        """Kill the process, and start it again after a while."""
        if not self._here():
            return
        self.world.kill(self.process)
        if power:
            self.simulation.disk.lose_power(self.machine, self.random)
        self.world.at(self.world.now + seconds, self.start)

    def leave(self, seconds: float) -> None:
        """Let the process end by itself, and start it again after a while."""
        if not self._here():
            return
        process = self.process
        process.must_live = False
        self._leaving = True
        self.world.interrupt(process)

        def again() -> None:
            if process.alive:
                self.world.kill(process)
            self._leaving = False
            self.start()

        self.world.at(self.world.now + max(seconds, 15.0), again)

    def open_client(self, signer: TimeSigner, past_the_door: bool = False) -> FleetClient:
        """Return a client for this node's key."""
        client = FleetClient(self.simulation.link, self.public_key, self._weather, signer, past_the_door)
        client.heard = self._hear
        client.sent = self.sent
        return client

    def _weather(self, call: str) -> tuple[float, float, str]:
        draw, accident = self.random.random(), ""
        for chance, name in (
            (self.wrong("lost", 0.0), "lost"),
            (self.wrong("unanswered", 0.0), "answer lost"),
            (self.wrong("doubled", 0.0) if call.startswith("push") else 0.0, "doubled"),
        ):
            if draw < chance:
                accident = name
                break
            draw -= chance
        if accident:
            self.simulation.faults[f"a request {accident}"] += 1
        delay = self.latency + self.wrong("delay", 0.0)
        return self.random.expovariate(1.0 / delay), self.random.expovariate(1.0 / delay), accident

    def _hear(self, call: str, answer: Any) -> None:
        if call == "pull-messages" and answer.messages_list:
            self.heard = answer.messages_list[0]

    # --- other hands ----------------------------------------------------------------------------------

    def forge(self, incident: Incident) -> None:
        """Do something hostile, beside whatever this node is doing."""
        simulation = self.simulation
        if self.node is None or not self.node._fleet.node_id or simulation.link.task is None:
            return
        victim = simulation.nodes[simulation.plan.honest[0]]
        kind = incident.kind.removeprefix("past the door: ")
        hands = Hands(
            self.world,
            self.open_client(self.node._fleet._signer, past_the_door=incident.kind != kind),
            node_id=self.node._fleet.node_id,
            victim=0 if victim.node is None else victim.node._fleet.node_id,
            victim_number=number_of_key(victim.public_key),
            question="0" * 64 if self.heard is None else self.heard.metadata.message_id,
            instruction=self.instruction,
            run_id=simulation.link.task.run_id,
        )
        process = Process(f"{self.name}'s other hand", self.machine, must_live=False)
        self.world.spawn(process, lambda: hands.do(kind, incident.amount))


def spoil(kind: str, reply: Message) -> Message:
    """Return a reply that must not count."""
    content = reply.content
    settings = content[SETTINGS]
    assert isinstance(settings, ConfigRecord)
    for name, record in list(content.array_records.items()):
        changed = {}
        for key, array in record.items():
            values = np.array(array.numpy(), dtype=np.float64)
            if kind in ("nan", "infinite", "huge"):
                values[0] = {"nan": np.nan, "infinite": np.inf, "huge": 1e200}[kind]
            elif kind == "short":
                values = np.concatenate([values, values])
            changed[key] = Array(values)
        content[name] = ArrayRecord(changed)
    if kind == "stale":
        settings["round"] = int(str(settings["round"])) - 1
    elif kind == "foreign session":
        settings["session"] = "another"
    elif kind == "boasting":
        settings["examples"] = [-5] * len(settings["examples"])
    return reply


def spoil_client(kind: str, reply: Message) -> Message:
    """Return a gateway's reply in which the clients that lie do so, and nothing else is changed."""
    settings: Any = reply.content[SETTINGS]
    clients = settings["clients"]
    liars = [k for k, name in enumerate(clients) if name.endswith(LYING)]
    if not liars:
        return reply
    for record in reply.content.array_records.values():
        learned = [k for k, status in enumerate(settings["statuses"]) if status == LEARNED]
        values = np.array(record["values"].numpy()).reshape(len(learned), -1)
        for row, k in zip(values, learned, strict=True):
            if k in liars and kind in ("nan", "infinite", "huge"):
                row[0] = {"nan": np.nan, "infinite": np.inf, "huge": 1e200}[kind]
        record["values"] = Array(values.reshape(-1))
    if kind == "boasting":
        settings["examples"] = [-5 if k in liars else count for k, count in enumerate(settings["examples"])]
    elif kind == "garbage":
        settings["metrics"] = ["[" if k in liars else text for k, text in enumerate(settings["metrics"])]
    return reply


def simulate(plan: Plan, expected: dict[int, bytes] | None = None) -> Simulation:
    """Run a plan; one that is exact is compared with `expected`, by default a run of it without incidents."""
    if plan.exact and plan.incidents and expected is None:
        expected = expected_models(plan)
    return Simulation(plan, expected).run()
