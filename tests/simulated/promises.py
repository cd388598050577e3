"""The federation's promises, checked after every round, after every restart and at the end."""

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from simulated_broker import MODEL, Violation
from simulated_federation import DIMENSION, MAX_CLIENTS

from psofed.common.errors import PsofedError
from psofed.federation.protocol.frames import REPLY, FrameError, decode_frame
from psofed.federation.protocol.messages import LEARNED
from psofed.federation.server.checkpoint import RECENT_ROUNDS, ROUNDS_PER_FILE, CheckpointStore, ServerState
from psofed.federation.server.clients import NAMES_PER_CLIENT

if TYPE_CHECKING:
    from simulation import Simulation

_MOST_FILES = {"server": 60, "node": 12}
_MOST_WAITING = 60  # messages for each node, of all kinds, at the broker and at both ends
_SOON = 5.0  # seconds within which a node with which nothing is wrong answers
_ATTEND = 1.5  # seconds, by which the server must look after other things


class Promises:
    """The invariants of one simulation, and what is known so far."""

    def __init__(self, simulation: "Simulation", expected: dict[int, bytes] | None) -> None:
        self.simulation = simulation
        self.expected = expected
        self.completed = 0
        self.safe = 0  # rounds that were completed; until then a power loss may take the last one
        self.epoch = 0
        self.target: int | None = None
        self.model = np.zeros(DIMENSION)  # before the current round
        self.models: dict[tuple[int, int], bytes] = {}
        self.revoked: dict[str, float] = {}
        self.most: Counter[str] = Counter()
        self.owners: dict[tuple[int, str], str] = {}

    # --- after a round --------------------------------------------------------------------------------

    def check_round(self, state: ServerState) -> None:
        """Check a round that was just completed."""
        number, plan = state.round_number, self.simulation.plan
        self.simulation.history = state.history
        if number != self.completed + 1:
            raise Violation(f"no round is lost: round {number} was completed after round {self.completed}")
        if state.epoch < self.epoch:
            raise Violation(f"a rollback is a new epoch: epoch {state.epoch} in round {number}, not {self.epoch}")
        self.completed = self.safe = number
        self.epoch = state.epoch
        self._check_replies(state)
        self.models[state.epoch, number] = state.model.tobytes()
        self.model = state.model.copy()
        if self.expected is not None and state.model.tobytes() != self.expected[number]:
            raise Violation(f"same bits: the model after round {number} is not that of an undisturbed run")
        self._check_history(state)
        entry, dropped = state.history[-1], state.history[-1]["dropped"]
        if not 0.0 <= entry["seconds"] <= plan.deadline + 0.5:
            raise Violation(f"deadline: round {number} took {entry['seconds']} s of {plan.deadline:g} s")
        nothing = not (entry["accepted"] or entry["lost_state"] or entry.get("left"))
        if entry["seconds"] < 0.1 and nothing and {*dropped.values()} == {"no-reply"}:
            raise Violation(f"a round waits for its nodes: round {number} ended at once, without any reply")
        for name in plan.names_of(plan.honest):
            if name in state.strikes["struck"]:
                raise Violation(f"no blame for another's doing: {name} has {state.strikes['counts'][name]}")
            if dropped.get(name) == "no-reply":
                self._check_absent(name, number)
        for name, when in self.revoked.items():
            # A name that another gateway was the first to use is not this node's.
            names = [of for of in plan.names_of([name]) if state.clients["owners"].get(of, name) == name]
            if {*names} & {*entry["accepted"]} and self.simulation.round_began > when + _ATTEND:
                raise Violation(f"a revoked node is out: a reply of {name} was accepted in round {number}")
        self._check_owners(state)
        if number % (1 + len(state.history) // 100) == 0:
            self._check_samples(state)
        self._check_sizes()
        self.check_processes()

    def _check_replies(self, state: ServerState) -> None:
        """Check that honest nodes have sent what counts as theirs, and that the model follows from what counts.

        w_{n+1} = 1/|S_n| Σ_k [S_{k,n+1} u_k + (I − S_{k,n+1}) w_n], over the replies that count.
        """
        simulation, plan, entry = self.simulation, self.simulation.plan, state.history[-1]
        assert simulation.server is not None
        masks = simulation.server.sharing.derived(DIMENSION)
        total, count = np.zeros(DIMENSION), 0
        for question in simulation.questions:
            frame = simulation.frames.get(question.sequence)
            if frame is None:
                continue
            if question.node in plan.honest and frame not in simulation.nodes[question.node].sent:
                raise Violation(f"a reply is its node's own: {question.node} has not sent what counts as its reply")
            try:
                _, header, body = decode_frame(frame, REPLY)
            except FrameError:
                continue
            if len(body) % (8 * plan.num_shared):
                continue
            rows = iter(np.frombuffer(body, np.float64).reshape(-1, plan.num_shared))
            for local, status in zip(header["clients"], header["statuses"], strict=False):
                client = question.clients.get(local)
                values = next(rows, None) if status == LEARNED else None
                if client is None or client.name not in entry["accepted"] or values is None:
                    continue
                joined = self.model.copy()
                joined[masks.indices(state.round_number + 1, client.number)] = values
                total, count = total + joined, count + 1
        literal = total / count if count else self.model
        if plan.rule == "mean" and not np.allclose(state.model, literal, rtol=1e-12, atol=1e-12):
            raise Violation(
                f"each reply counts once: the model after round {state.round_number} does not follow from its replies"
            )

    def _check_absent(self, name: str, number: int) -> None:
        """Check that a node that has not answered could not."""
        simulation = self.simulation
        if number > simulation.plan.rounds:
            raise Violation(f"who is back is heard again: {name} did not answer in round {number}")
        node = simulation.nodes[name.partition(".")[0]]
        ends = [node.link, simulation.hub]
        if all(end is not None and end.online_since is not None for end in ends):
            since = max(node.disturbed_until, simulation.broker.began, *(end.online_since for end in ends if end))
            if node.process.is_running and simulation.world.now - since > _SOON:
                raise Violation(f"who can answer is heard: {name} did not answer in round {number}")

    def _check_history(self, state: ServerState) -> None:
        rounds = [entry["round"] for entry in state.history]
        if rounds != list(range(max(0, state.round_number - RECENT_ROUNDS) + 1, state.round_number + 1)):
            raise Violation(f"the history has no gap: after round {state.round_number} it is {rounds}")

    def _check_samples(self, state: ServerState) -> None:
        counted: Counter[str] = Counter()
        read: dict[str, float] = {}
        for entry in state.history:
            for name, count in entry["examples_by_node"].items():
                counted[name] += count
                read[name] = max(read.get(name, 0.0), entry["metrics"][name].get("samples-read", 0))
        honest = [node for node in self.simulation.plan.honest if not self.simulation.nodes[node].has_twin]
        for name in self.simulation.plan.names_of(honest):
            if counted[name] > read.get(name, 0):
                raise Violation(f"no sample counts twice: {counted[name]} of {name}, which has read {read[name]}")

    def _check_owners(self, state: ServerState) -> None:
        """Check that no client is at two gateways, nor ever changes its gateway, and that their names are bounded."""
        rosters = state.clients["rosters"]
        named = Counter(name for names in rosters.values() for name in names)
        if doubled := [name for name, count in named.items() if count > 1]:
            raise Violation(f"a client has one gateway: {doubled[0]} is in {rosters}")
        for owner, count in Counter(state.clients["owners"].values()).items():
            if count > MAX_CLIENTS * NAMES_PER_CLIENT:
                raise Violation(f"bounded memory: {owner} has used {count} names of clients")
        for name, owner in state.clients["owners"].items():
            if self.owners.setdefault((state.epoch, name), owner) != owner:
                raise Violation(f"a client keeps its gateway: {name} is now at {owner}")

    def _check_sizes(self) -> None:
        simulation = self.simulation
        hub, nodes = simulation.hub, simulation.nodes.values()
        assert hub is not None
        sizes = {
            "the broker": len(simulation.broker.kept) + len(simulation.broker.retained),
            "the server": len(hub.unsent) + sum(map(len, hub.pending.values())),
            "the nodes": sum(len(node.link.unsent) + len(node.link.arrivals) for node in nodes if node.link),
        }
        for who, size in sizes.items():
            if size > _MOST_WAITING * len(simulation.nodes):
                raise Violation(f"bounded memory: {who} keeps {size} messages")
        machines = {"server": [simulation.app.machine], "node": [node.machine for node in nodes]}
        for kind, places in machines.items():
            for machine in places:
                files = simulation.disk.count(machine)
                if files > _MOST_FILES[kind] + self.completed // ROUNDS_PER_FILE:
                    raise Violation(f"bounded files: {files} under {machine}")

    # --- at other times -------------------------------------------------------------------------------

    def check_disk(self) -> None:
        """Check the checkpoint before the server continues from it."""
        from simulation import CHECKPOINT

        if not self.simulation.disk.exists(CHECKPOINT):
            if self.safe:
                raise Violation(f"no round is lost: there is no checkpoint, and {self.safe} rounds were completed")
            self.completed, self.model = 0, np.zeros(DIMENSION)
            return
        store = CheckpointStore(CHECKPOINT)
        try:
            state = store.load()
        except PsofedError as error:
            raise Violation(f"no round is lost: {error}") from error
        number = state.round_number
        if self.target is not None and state.epoch > self.epoch and number == self.target:
            self.completed = self.safe = self.target
            self.epoch = state.epoch
        self.target = None
        if number < self.safe:
            raise Violation(f"no round is lost: the checkpoint is of round {number}, not {self.safe}")
        self._check_history(state)
        # In a long run all of it is read at the end only: a restart loads the latest rounds.
        if number < 3 * ROUNDS_PER_FILE or number == self.simulation.plan.all_rounds:
            entries = [entry["round"] for entry in store.history.entries(state)]
            if entries != list(range(1, number + 1)):
                raise Violation(f"the history has no gap: on disk, after round {number}")
        if self.models.get((state.epoch, number), state.model.tobytes()) != state.model.tobytes():
            raise Violation(f"no round is lost: the checkpoint of round {number} holds another model")
        self.completed, self.model = number, state.model

    def rolling_back(self, number: int) -> None:
        """Note that the operator goes back to an earlier round; that may fail, and then nothing must have changed."""
        if number > self.completed:
            raise Violation(f"rollback goes back: to round {number} after round {self.completed}")
        self.target = number

    def revoke(self, name: str) -> None:
        """Revoke a node's certificate."""
        self.simulation.revoked.add(name)
        self.revoked.setdefault(name, self.simulation.world.now)

    def check_attended(self) -> None:
        """Check that the server looks after other things, such as a request to stop, at least once a second."""
        simulation = self.simulation
        now, before = simulation.world.now, simulation.attended
        simulation.attended = now
        if now - before > _ATTEND:
            raise Violation(f"the server attends: nothing for {now - before:.1f} s")

    def check_processes(self) -> None:
        """Check that honest processes live, and that a server that was asked to stop does."""
        simulation = self.simulation
        for node in simulation.nodes.values():
            if (failure := node.process.failure) is not None:
                raise Violation(
                    f"a node lives: {node.name} ended with {type(failure).__name__}: {failure}"
                ) from failure
        asked = simulation.stop_asked
        if asked is not None and simulation.world.now - max(asked, simulation.quiet_until) > 2 * _ATTEND:
            raise Violation(f"stop stops: asked at {asked:.0f} s, and the server runs")

    def check_server(self, failure: BaseException | None) -> None:
        """Check a server that has ended."""
        if failure is not None:
            raise Violation(f"the server lives: it ended with {type(failure).__name__}: {failure}") from failure

    def check_end(self) -> None:
        """Check a simulation that has come to its end."""
        self.check_disk()
        simulation = self.simulation
        if self.completed != simulation.plan.all_rounds:
            raise Violation(f"progress: {self.completed} of {simulation.plan.all_rounds} rounds")
        published = json.loads(simulation.broker.retained.get((MODEL, ""), b"{}"))
        if published.get("round", 0) < self.completed - 1:
            raise Violation(f"the model is published: {published.get('round')} after round {self.completed}")
