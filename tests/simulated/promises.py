"""The federation's promises, checked after every round, after every restart and at the end."""

from collections import Counter
from typing import TYPE_CHECKING

import httpx
from simulated_link import SERVER, Violation

from psofed.common.errors import PsofedError
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.checks import Conduct
from psofed.federation.server.clients import NAMES_PER_CLIENT
from psofed.federation.server.history import RECENT_ROUNDS, ROUNDS_PER_FILE

if TYPE_CHECKING:
    from simulation import Simulation

LIMITS = ReplyLimits(max_clients=6)  # no honest gateway has more
_LONGEST_LIFE = 3600.0  # seconds, of an instruction that nobody answers
_MOST_FILES = {"server": 60, "node": 12}


class Promises:
    """The invariants of one simulation, and what is known so far."""

    def __init__(self, simulation: "Simulation", expected: dict[int, bytes] | None) -> None:
        self.simulation = simulation
        self.expected = expected
        self.completed = 0
        self.safe = (
            0  # rounds that were acknowledged or built on; until then a power loss may take the last one
        )
        self.epoch = 0
        self.target: int | None = None
        self.models: dict[tuple[int, int], bytes] = {}
        self.revoked: dict[str, float] = {}
        self.most: Counter[str] = Counter()
        self.owners: dict[tuple[int, str], str] = {}

    # --- after a round --------------------------------------------------------------------------------

    def check_round(self, state: ServerState) -> None:
        """Check a round that was just completed."""
        number, plan = state.round_number, self.simulation.plan
        self.simulation.history = list(state.history)
        if number != self.completed + 1:
            raise Violation(f"no round is lost: round {number} was completed after round {self.completed}")
        if state.epoch < self.epoch:
            raise Violation(
                f"a rollback is a new epoch: epoch {state.epoch} in round {number}, not {self.epoch}"
            )
        self.completed = self.safe = number
        self.epoch = state.epoch
        self.models[state.epoch, number] = state.model.tobytes()
        if self.expected is not None and state.model.tobytes() != self.expected[number]:
            raise Violation(f"same bits: the model after round {number} is not that of an undisturbed run")
        self._check_history(state)
        entry = state.history[-1]
        longest = plan.deadline + 1.0 + 0.5 * len(entry["participants"])
        if entry["seconds"] > longest:
            raise Violation(f"deadline: round {number} took {entry['seconds']} s of {plan.deadline:g} s")
        if (
            entry["seconds"] < 0.1
            and all(kind == "no-reply" for kind in entry["dropped"].values())
            and not (entry["accepted"] or entry["lost_state"] or entry.get("left"))
        ):
            raise Violation(f"a round waits for its nodes: round {number} ended at once, without any reply")
        conduct = Conduct.from_mapping(state.conduct, LIMITS)
        for name in plan.honest_names:
            if conduct.strikes(name):
                raise Violation(f"no blame for another's doing: {name} has {dict(conduct.counts[name])}")
        for name, when in self.revoked.items():
            # A name that another gateway was the first to use is not this node's.
            owners = state.clients["owners"]
            names = [of for of in plan.clients_of(name) or (name,) if owners.get(of, name) == name]
            if set(names) & set(entry["accepted"]) and self.simulation.round_began > when:
                raise Violation(f"a revoked node is out: a reply of {name} was accepted in round {number}")
        if number > plan.rounds:
            for name in plan.honest_names:
                if entry["dropped"].get(name) == "no-reply":
                    raise Violation(f"who is back is heard again: {name} did not answer in round {number}")
        self._check_owners(state)
        if number % (1 + len(state.history) // 100) == 0:
            self._check_samples(state)
        self._check_sizes()
        self.check_processes()

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
        for name in self.simulation.plan.honest_names:
            if counted[name] > read.get(name, 0):
                raise Violation(
                    f"no sample counts twice: {counted[name]} of {name}, which has read {read[name]}"
                )

    def _check_owners(self, state: ServerState) -> None:
        """Check that no client is at two gateways, nor ever changes its gateway, and that their names are bounded."""
        rosters = state.clients["rosters"]
        named = Counter(name for names in rosters.values() for name in names)
        if doubled := [name for name, count in named.items() if count > 1]:
            raise Violation(f"a client has one gateway: {doubled[0]} is in {rosters}")
        for owner, count in Counter(state.clients["owners"].values()).items():
            if count > LIMITS.max_clients * NAMES_PER_CLIENT:
                raise Violation(f"bounded memory: {owner} has used {count} names of clients")
        for name, owner in state.clients["owners"].items():
            if self.owners.setdefault((state.epoch, name), owner) != owner:
                raise Violation(f"a client keeps its gateway: {name} is now at {owner}")

    def _check_sizes(self) -> None:
        simulation = self.simulation
        nodes = len(simulation.plan.nodes)
        for kind, size in simulation.link.sizes().items():
            self.most[kind] = max(self.most[kind], size)
            bound = {"objects": 20 * nodes + 40, "sessions": 5 * nodes + 10}.get(kind, 10 * nodes + 20)
            if size > bound:
                raise Violation(f"bounded memory: the SuperLink keeps {size} {kind}")
        for message in simulation.link.state.message_ins_store.values():
            if message.metadata.ttl > _LONGEST_LIFE:
                raise Violation(f"bounded memory: an instruction lives for {message.metadata.ttl:g} s")
        for machine in (SERVER, *(node.machine for node in simulation.nodes.values())):
            files, _ = simulation.disk.count(machine)
            kind = "server" if machine == SERVER else "node"
            self.most[f"{kind} files"] = max(self.most[f"{kind} files"], files)
            if files > _MOST_FILES[kind] + self.completed // ROUNDS_PER_FILE:
                raise Violation(f"bounded files: {files} under {machine}")

    # --- at other times -------------------------------------------------------------------------------

    def check_disk(self) -> None:
        """Check the checkpoint before the server continues from it."""
        from simulation import CHECKPOINT

        if not self.simulation.disk.exists(CHECKPOINT):
            if self.safe:
                raise Violation(
                    f"no round is lost: there is no checkpoint, and {self.safe} rounds were completed"
                )
            self.completed = 0
            return
        try:
            state = CheckpointStore(CHECKPOINT).load()
        except PsofedError as error:
            raise Violation(f"no round is lost: {error}") from error
        if self.target is not None and state.epoch > self.epoch and state.round_number == self.target:
            self.completed = self.safe = self.target
            self.epoch = state.epoch
        self.target = None
        if state.round_number < self.safe:
            raise Violation(
                f"no round is lost: the checkpoint is of round {state.round_number}, not {self.safe}"
            )
        self._check_history(state)
        # In a long run all of it is read at the end only: a restart loads the latest rounds.
        short = state.round_number in (*range(3 * ROUNDS_PER_FILE), self.simulation.plan.all_rounds)
        history = CheckpointStore(CHECKPOINT).history
        if short and [entry["round"] for entry in history.entries(state)] != list(
            range(1, state.round_number + 1)
        ):
            raise Violation(f"the history has no gap: on disk, after round {state.round_number}")
        known = self.models.get((state.epoch, state.round_number))
        if known is not None and known != state.model.tobytes():
            raise Violation(
                f"no round is lost: the checkpoint of round {state.round_number} holds another model"
            )
        self.completed = state.round_number

    def rolling_back(self, number: int) -> None:
        """Note that the operator goes back to an earlier round; that may fail, and then nothing must have changed."""
        if number > self.completed:
            raise Violation(f"rollback goes back: to round {number} after round {self.completed}")
        self.target = number

    def check_processes(self) -> None:
        """Check that honest processes live."""
        for node in self.simulation.nodes.values():
            failure = node.process.failure
            if (
                failure is not None
                and node.process.must_live
                and node.name not in self.simulation.plan.byzantine
            ):
                raise Violation(
                    f"an honest process lives: {node.name} ended with {type(failure).__name__}: {failure}"
                )

    def check_failure(self, failure: BaseException) -> None:
        """Check that a ServerApp which has ended had a reason for it."""
        if self.simulation.undisturbed:
            raise Violation(f"the server lives: the ServerApp ended with {type(failure).__name__}: {failure}")
        if not isinstance(failure, PsofedError | httpx.HTTPError):
            raise Violation(f"the server ends in words: {type(failure).__name__}: {failure}") from failure

    def check_end(self) -> None:
        """Check a simulation that has come to its end."""
        self.check_disk()
        if self.completed != self.simulation.plan.all_rounds:
            raise Violation(f"progress: {self.completed} of {self.simulation.plan.all_rounds} rounds")
