"""A node's work for its clients: each client that an instruction names learns, and one reply answers for all.

A gateway has many clients; any other node has one without a name, which is handled the same way.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.federation.client.privacy import PRIVACY, make_private, note_download, read_privacy
from psofed.federation.client.state import ClientMemory, ClientState, MemoryStore
from psofed.federation.protocol.aggregate import overwrite
from psofed.federation.protocol.instructions import FULL, PART, SYNC, ClientTask, Instruction
from psofed.federation.protocol.layout import Arrays, ModelLayout, Vector
from psofed.federation.protocol.masks import Indices
from psofed.federation.protocol.names import check_client_names, clean_text, client_number, node_number
from psofed.federation.protocol.replies import FAILED, LEARNED, LEFT, LOST, NodeReply, Reply
from psofed.parts.channels.built_in import Private
from psofed.render.numbers import listed

_log = logging.getLogger("psofed.federation")

MISSED, CURRENT = "missed", "current"
DIVERGED = "training diverged: the model holds values that are not finite; a smaller stepsize or scaled data help"


@dataclass(frozen=True, eq=False)
class TrainingRequest:
    """One call of a client's training.

    Attributes
    ----------
    client : str
        Its name at the node.
    phase : str
        :data:`MISSED` or :data:`CURRENT`.
    round_number, elapsed : int
        n, and the number of rounds since the client's last one, this one included.
    layout, model, kept
        The model it learns on, which it may change in place, and its arrays that are not shared.
    records : mapping
        What the client keeps; see :class:`psofed.federation.client.state.ClientMemory`.
    config : mapping
        What the server tells the training.
    """

    client: str
    phase: str
    round_number: int
    elapsed: int
    layout: ModelLayout
    model: Vector
    kept: Arrays
    records: Mapping[str, Any]
    config: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Outcome of a training.

    Attributes
    ----------
    model, kept, records
        As in the request, afterwards.
    num_examples, metrics
        What is reported.
    remark, warning : str
        What a person should know if there was nothing to learn from, and in any case.
    """

    model: Vector
    kept: Arrays
    records: Mapping[str, Any]
    num_examples: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""
    warning: str = ""


Training = Callable[[TrainingRequest], TrainingResult]
Corruption = Callable[[Instruction, ClientTask, Vector], Vector]
"""Given an instruction, a task and the honest upload, returns what a Byzantine client uploads instead."""


@dataclass(frozen=True)
class Gateway:
    """How a node answers.

    Parameters
    ----------
    training : callable
        Lets one client learn.
    catch_up : bool
        Call the training twice if the client was left out for some rounds: once on its own model (:data:`MISSED`) for
        what arrived meanwhile, as the paper's unselected clients do, and once (:data:`CURRENT`) after the server's
        entries have come in.
    clients : callable, optional
        Returns the names of a gateway's clients, which may come and go. None: the node is not a gateway.
    privacy : Private, optional
        Makes every upload private.
    corruption : callable, optional
        Rehearses an attack: what is uploaded changes and nothing else. Such uploads are sent as they are.
    """

    training: Training
    catch_up: bool = False
    clients: Callable[[], Sequence[str]] | None = None
    privacy: Private | None = None
    corruption: Corruption | None = None
    _refused: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def names(self) -> tuple[str, ...] | None:
        """Return the clients of a gateway; None if the node is not a gateway."""
        return None if self.clients is None else check_client_names(self.clients(), gateway=True)

    def answer(self, instruction: Instruction, store: MemoryStore) -> NodeReply:
        """Return the reply to an instruction.

        What a client keeps changes only if its training succeeds. Where several are asked, one whose training fails
        reports it, and the others continue; where one is asked, the exception is raised to the caller.
        """
        names = self.names()
        if refused := sorted(set(instruction.refused) - self._refused):
            _log.warning(
                "the server refuses clients that belong to other nodes, or are more than this node may have: %s",
                listed(refused),
            )
        self._refused.clear()
        self._refused.update(instruction.refused)
        memory = store.recall(instruction.session, instruction.node)
        replies: list[Reply] = []
        changed: dict[str, ClientMemory] = {}
        digest = ""
        for task in instruction.tasks:
            if task.client not in (("",) if names is None else names):
                replies.append(Reply(LEFT, task.client))
                continue
            reply, after = self._answer_for(instruction, task, memory.of(task.client))
            if after is not None:
                changed[task.client] = after
            state = (after or memory.of(task.client)).state
            if reply.status == LEARNED and state is not None:
                digest = state.layout.digest
            replies.append(reply)
        if changed:
            store.commit(memory, changed)
        answered = instruction.session, instruction.round_number, instruction.sequence
        return NodeReply(*answered, tuple(replies), digest)

    def _answer_for(
        self, instruction: Instruction, task: ClientTask, memory: ClientMemory
    ) -> tuple[Reply, ClientMemory | None]:
        """Return a client's reply, and what it keeps if that has changed."""
        try:
            return self._train(instruction, task, memory)
        except Exception as error:
            if len(instruction.tasks) == 1:
                raise
            reason = reason_of(error)
            _log.warning("round %d: %s failed: %s", instruction.round_number, task.client, reason)
            return Reply(FAILED, task.client, remark=reason), None

    def _train(
        self, instruction: Instruction, task: ClientTask, memory: ClientMemory
    ) -> tuple[Reply, ClientMemory | None]:
        n, state = instruction.round_number, memory.state
        if state is not None and (instruction.epoch, n) <= (state.epoch, state.round_number):
            if (instruction.epoch, n) < (state.epoch, state.round_number):
                raise PsofedError(
                    f"asked for round {n}, after having worked in round {state.round_number}: an old instruction, or "
                    "a server that lost rounds, which a rollback repairs"
                )
            # The server asks again, say after it was restarted: the same answer, and nothing learned twice.
            return self._reply(instruction, task, memory), None
        begun = _begin(instruction, task, state)
        if begun is None:
            return Reply(LOST, task.client), None
        layout, model, kept, elapsed = begun
        records, examples, reported = memory.records, 0, dict[str, Any]()

        def train(phase: str, model: Vector, kept: Arrays, records: Mapping[str, Any]) -> TrainingResult:
            request = TrainingRequest(task.client, phase, n, elapsed, layout, model, kept, records, instruction.config)
            return self.training(request)

        if self.catch_up and elapsed > 1:
            missed = train(MISSED, model.copy(), kept, records)
            model, kept, records = _finite(missed.model), missed.kept, missed.records
            examples, reported = missed.num_examples, dict(missed.metrics)
        indices = _indices(instruction, task, n)
        assert task.values is not None  # decode_instruction gives values with every kind
        whole = task.kind in (FULL, SYNC)
        received = task.values[indices] if whole else task.values
        learned = train(CURRENT, overwrite(model, indices, received), kept, records)
        examples += learned.num_examples
        metrics = _join(reported, learned.metrics)
        following = ClientState(instruction.epoch, n, layout, _finite(learned.model), learned.kept, examples, metrics)
        records = learned.records
        if self.privacy is not None:
            entries = np.arange(layout.dimension) if whole else indices
            values, when = np.asarray(task.values, np.float64), f"{instruction.epoch} {n}"
            records = {**records, PRIVACY: note_download(records, layout.dimension, entries, values, when)}
        after = ClientMemory(following, records)
        remark = learned.warning if examples else learned.remark
        return self._reply(instruction, task, after, remark), after

    def _reply(self, instruction: Instruction, task: ClientTask, memory: ClientMemory, remark: str = "") -> Reply:
        """Return the reply of a client that has learned, as it leaves the node."""
        state = memory.state
        assert state is not None  # the caller has learned or found it
        entries = _indices(instruction, task, state.round_number + 1)
        values = state.model[entries]
        if self.corruption is not None:
            values = self.corruption(instruction, task, values)
        reply = Reply(LEARNED, task.client, values, state.num_examples, state.metrics, remark)
        if self.privacy is None or self.corruption is not None:
            return reply
        return make_private(self.privacy, reply, read_privacy(memory.records, state.layout.dimension), entries)


def reason_of(error: Exception) -> str:
    """Return what went wrong in one short line."""
    return clean_text(error if isinstance(error, PsofedError) else f"{type(error).__name__}: {error}")


def _begin(
    instruction: Instruction, task: ClientTask, state: ClientState | None
) -> tuple[ModelLayout, Vector, Arrays, int] | None:
    """Return (layout, model, unshared arrays, elapsed rounds) to begin with, or None if the state is lost."""
    n = instruction.round_number
    if state is not None and state.epoch == instruction.epoch and state.round_number >= task.expected:
        fits = state.layout.dimension == instruction.masks.dimension
        if state.layout.digest != instruction.digest or not fits:
            raise PsofedError("the server's model has another layout than this client's")
        if task.kind == SYNC:
            return state.layout, np.array(task.values), state.kept, 1
        return state.layout, state.model, state.kept, n - state.round_number
    if task.kind == PART:
        return None
    layout = instruction.layout
    if layout is None or layout.digest != instruction.digest or layout.dimension != instruction.masks.dimension:
        raise PsofedError("the server sent no layout of its model, or one that does not fit")
    if task.kind in (FULL, SYNC):
        # What arrived before is learned on top of the server's model: there is no older one to learn on.
        return layout, np.array(task.values), {}, 1
    return layout, np.zeros(layout.dimension, dtype=layout.dtype), {}, n


def _indices(instruction: Instruction, task: ClientTask, n: int) -> Indices:
    return instruction.masks.indices(n, client_number(node_number(instruction.node), task.client))


def _finite(model: Vector) -> Vector:
    if not np.isfinite(model).all():
        raise PsofedError(DIVERGED)
    return model


def _join(missed: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Join the metrics of both phases: lists one after the other, scalars of the current phase."""
    joined = {**missed, **current}
    for name, value in current.items():
        if isinstance(value, list) and isinstance(earlier := missed.get(name), list):
            joined[name] = earlier + value
    return joined
