"""A node's work for its clients: each client that an instruction names learns, and one reply answers for all.

A gateway has many clients; any other node has one without a name, which is handled the same way.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from flwr.app import ArrayRecord, Context, RecordDict

from psofed.common.errors import PsofedError
from psofed.federation.client.sources import NoDataYetError
from psofed.federation.client.state import ClientMemory, ClientState, commit, recall
from psofed.federation.client.uplink import UPLINK, Uplink, read_link
from psofed.federation.protocol.aggregate import overwrite
from psofed.federation.protocol.answers import (
    DESCRIBED,
    EVALUATED,
    FAILED,
    LEARNED,
    LEFT,
    LOST,
    NodeReply,
    Reply,
    encode_reply,
)
from psofed.federation.protocol.bounds import MAX_ENTRIES
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.layout import ModelLayout, Vector
from psofed.federation.protocol.masks import MaskSource
from psofed.federation.protocol.wire import (
    DESCRIBE,
    EVALUATE,
    FULL,
    PART,
    SYNC,
    ClientTask,
    Instruction,
    check_client_names,
    clean_text,
    client_number,
    decode_instruction,
    roster_digest,
)
from psofed.render.numbers import listed

_log = logging.getLogger("psofed.federation")

MISSED, CURRENT, EVALUATION = "missed", "current", "evaluation"
NODE_NUMBER = "psofed-number"
DIVERGED = (
    "training diverged: the model holds values that are not finite; a smaller stepsize or scaled data help"
)


class FindsColumns(Protocol):
    """A training function that finds its columns by the names in ``config["psofed-columns"]``, or refuses."""

    def columns(self) -> ColumnNames | None:
        """Return the names of its data's columns, None if they have none."""
        ...


class Lesson(NamedTuple):
    """One call of a client's training.

    Attributes
    ----------
    client : str
        Its name at the node.
    phase : str
        :data:`MISSED`, :data:`CURRENT` or :data:`EVALUATION`.
    round_number, elapsed : int
        n, and the number of rounds since the client's last one, this one included.
    layout, model, kept
        The model it learns on, which it may change in place, and its arrays that are not shared.
    records : mapping
        What the client keeps; see :class:`psofed.federation.client.state.ClientMemory`.
    again : callable, optional
        Returns the model once more, as it was before it was changed; nobody may change what it returns.
    """

    client: str
    phase: str
    round_number: int
    elapsed: int
    layout: ModelLayout
    model: Vector
    kept: ArrayRecord
    records: Mapping[str, Any]
    again: Callable[[], Vector] | None = None


class Learned(NamedTuple):
    """Outcome of a lesson.

    Attributes
    ----------
    model, kept, records
        As in the lesson, afterwards.
    num_examples, metrics
        What is reported.
    remark, warning : str
        What a person should know if there was nothing to learn from, and in any case.
    """

    model: Vector
    kept: ArrayRecord
    records: Mapping[str, Any]
    num_examples: int = 0
    metrics: Mapping[str, Any] = MappingProxyType({})
    remark: str = ""
    warning: str = ""


Training = Callable[[Lesson], Learned]


@dataclass(frozen=True)
class Gateway:
    """How a node answers; the parameters are those of :func:`psofed.federation.partial_sharing`."""

    catch_up: bool = False
    masks: MaskSource | None = None
    max_entries: int = MAX_ENTRIES
    columns: ColumnNames | FindsColumns | None = None
    uplink: Uplink | None = None
    clients: Callable[[], Sequence[str]] | None = None
    _refused: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def answer(
        self,
        content: RecordDict,
        context: Context,
        directory: Path | None,
        training: Training,
        evaluates: bool,
    ) -> RecordDict:
        """Return the content of the reply to an instruction.

        What a client keeps changes only if its training succeeds. Where several are asked, one whose training fails
        reports it, and the others continue; where one is asked, the exception is raised to the caller.
        """
        instruction = decode_instruction(content, self.max_entries)
        number = context.node_config.get(NODE_NUMBER)
        if number is not None and str(number) != str(instruction.node):
            raise PsofedError(f"the server addresses node {instruction.node}; this is node {number}")
        names = None if self.clients is None else check_client_names(self.clients(), gateway=True)
        if refused := sorted(set(instruction.refused) - self._refused):
            _log.warning(
                "the server refuses clients that belong to other nodes, or are more than this node's key allows: %s",
                listed(refused),
            )
        self._refused.clear()
        self._refused.update(instruction.refused)
        memory = recall(context, instruction.session, instruction.node, directory)
        replies: list[Reply] = []
        changed: dict[str, ClientMemory] = {}
        columns: ColumnNames | None = None
        for task in instruction.tasks:
            if task.kind == DESCRIBE:
                columns, reply = self._describe(task)
            elif task.client not in (("",) if names is None else names):
                # A server that does not know this gateway yet asks for a client without a name.
                reply = Reply(client=task.client, status=LEFT if task.client or not names else DESCRIBED)
            else:
                reply, learned = self._answer_for(
                    instruction, task, memory.of(task.client), training, evaluates
                )
                if learned is not None:
                    changed[task.client] = learned
            replies.append(reply)
        if changed:
            commit(context, memory, changed, directory)
        is_news = roster_digest(names or ()) != instruction.roster
        digest = next((m.state.layout.digest for m in changed.values() if m.state is not None), "")
        if not digest:  # of answers that are given once more
            again = (memory.of(reply.client).state for reply in replies if reply.status == LEARNED)
            digest = next((state.layout.digest for state in again if state is not None), "")
        return encode_reply(
            NodeReply(
                session=instruction.session,
                round_number=instruction.round_number,
                node=instruction.node,
                digest=digest,
                columns=columns,
                roster=tuple(names or ()) if is_news else None,
                replies=tuple(replies),
            )
        )

    def _answer_for(
        self,
        instruction: Instruction,
        task: ClientTask,
        memory: ClientMemory,
        training: Training,
        evaluates: bool,
    ) -> tuple[Reply, ClientMemory | None]:
        """Return a client's reply, and what it keeps if that has changed."""
        try:
            if evaluates or task.kind == EVALUATE:
                return _evaluate(task.client, memory, training), None
            return self._train(instruction, task, memory, training)
        except Exception as error:
            if len(instruction.tasks) == 1:
                raise
            known = isinstance(error, PsofedError)
            reason = clean_text(error if known else f"{type(error).__name__}: {error}")
            _log.warning("round %d: %s failed: %s", instruction.round_number, task.client, reason)
            return Reply(client=task.client, status=FAILED, remark=reason), None

    def _train(
        self, instruction: Instruction, task: ClientTask, memory: ClientMemory, training: Training
    ) -> tuple[Reply, ClientMemory | None]:
        n, state = instruction.round_number, memory.state
        number = client_number(instruction.node, task.client)
        source = self.masks or instruction.masks
        if state is not None and (state.epoch, state.round_number) == (instruction.epoch, n):
            # The server asks again, say after it was restarted: the same answer, and nothing learned twice.
            return self._reply(instruction, task.client, memory, source), None
        begun = _begin(instruction, task, state)
        if begun is None:
            return Reply(client=task.client, status=LOST), None
        layout, model, kept, elapsed = begun
        _check_columns(layout.columns, self.columns)
        records, examples, reported = memory.records, 0, dict[str, Any]()
        if self.catch_up and elapsed > 1:
            missed = training(Lesson(task.client, MISSED, n, elapsed, layout, model.copy(), kept, records))
            model, kept, records = _finite(missed.model), missed.kept, missed.records
            examples, reported = missed.num_examples, dict(missed.metrics)
        indices = source.indices(n, number)
        assert task.values is not None  # decode_instruction gives values with every kind that is learned from
        whole = task.kind in (FULL, SYNC)
        received = task.values[indices] if whole else task.values
        begin = partial(overwrite, model, indices, received)
        learned = training(Lesson(task.client, CURRENT, n, elapsed, layout, begin(), kept, records, begin))
        examples += learned.num_examples
        following = ClientState(
            epoch=instruction.epoch,
            round_number=n,
            layout=layout,
            model=_finite(learned.model),
            kept=learned.kept,
            num_examples=examples,
            metrics=_join(reported, learned.metrics),
        )
        records = learned.records
        if self.uplink is not None:
            entries = np.arange(layout.dimension) if whole else indices
            when = f"{instruction.epoch} {n}"
            link = self.uplink.note(
                records, layout.dimension, entries, np.asarray(task.values, np.float64), when
            )
            records = {**records, UPLINK: link}
        kept_now = ClientMemory(following, records)
        remark = learned.warning if examples else learned.remark
        return self._reply(instruction, task.client, kept_now, source, remark), kept_now

    def _reply(
        self,
        instruction: Instruction,
        client: str,
        memory: ClientMemory,
        source: MaskSource,
        remark: str = "",
    ) -> Reply:
        """Return the reply of a client that has learned, as it leaves the node."""
        state = memory.state
        assert state is not None  # the caller has learned or found it
        number = client_number(instruction.node, client)
        entries = source.indices(state.round_number + 1, number)
        reply = Reply(
            client=client,
            status=LEARNED,
            values=state.model[entries],
            num_examples=state.num_examples,
            metrics=state.metrics,
            remark=remark,
        )
        if self.uplink is None:
            return reply
        held = read_link(memory.records, state.layout.dimension)
        at = (instruction.session, number, state.round_number)
        return self.uplink.send(reply, held, at, np.asarray(entries, np.int64))

    def _describe(self, task: ClientTask) -> tuple[ColumnNames | None, Reply]:
        """Return the names of the node's columns."""
        remark = ""
        try:
            own = self.columns
            named = own if own is None or isinstance(own, ColumnNames) else own.columns()
        except NoDataYetError as error:
            named, remark = None, str(error)
        return named, Reply(client=task.client, status=DESCRIBED, remark=remark)


def _begin(
    instruction: Instruction, task: ClientTask, state: ClientState | None
) -> tuple[ModelLayout, Vector, ArrayRecord, int] | None:
    """Return (layout, model, unshared arrays, elapsed rounds) to begin with, or None if the state is lost."""
    n = instruction.round_number
    if state is not None and state.epoch == instruction.epoch and state.round_number >= task.expected:
        fits = state.layout.dimension == instruction.masks.dimension
        if state.layout.digest != instruction.digest or not fits:
            raise PsofedError("the server's model has another layout than this client's")
        if task.kind == SYNC:
            return state.layout, np.array(task.values), state.kept, 1
        return state.layout, state.model, state.kept, max(1, n - state.round_number)
    if task.kind == PART:
        return None
    layout = instruction.layout
    if (
        layout is None
        or layout.digest != instruction.digest
        or layout.dimension != instruction.masks.dimension
    ):
        raise PsofedError("the server sent no layout of its model, or one that does not fit")
    if task.kind in (FULL, SYNC):
        # What arrived before is learned on top of the server's model: there is no older one to learn on.
        return layout, np.array(task.values), ArrayRecord(), 1
    return layout, np.zeros(layout.dimension, dtype=layout.dtype), ArrayRecord(), n


def _check_columns(run: ColumnNames | None, columns: ColumnNames | FindsColumns | None) -> None:
    """Raise PsofedError if a training function that does not find its columns itself has others than the run."""
    if columns is None and run is not None:
        raise PsofedError(f"this client's columns have no names; the run's columns are {run}")
    if not isinstance(columns, ColumnNames):
        return
    if run is None:
        raise PsofedError(f"this client's columns have names ({columns}), the run's do not")
    run.check_same(columns, "this client")
    if columns.features != run.features:
        raise PsofedError(f"this client's columns are {columns}; the run's have another order: {run}")


def _evaluate(client: str, memory: ClientMemory, training: Training) -> Reply:
    """Evaluate the client's own model without changing what the client keeps."""
    state = memory.state
    if state is None:
        raise PsofedError("this client has no model yet")
    n = state.round_number
    found = training(Lesson(client, EVALUATION, n, 1, state.layout, state.model, state.kept, memory.records))
    return Reply(client=client, status=EVALUATED, num_examples=found.num_examples, metrics=found.metrics)


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
