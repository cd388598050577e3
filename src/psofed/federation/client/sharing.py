"""The client's side: a Flower mod that turns ordinary full-model training into partial sharing."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict

from psofed.common.errors import PsofedError
from psofed.federation.client.sources import NoDataYetError
from psofed.federation.client.state import ClientState, commit_state, copy_records, find_state
from psofed.federation.client.uplink import Uplink
from psofed.federation.protocol.aggregate import overwrite
from psofed.federation.protocol.bounds import MAX_ENTRIES
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.layout import ModelLayout, Vector
from psofed.federation.protocol.masks import MaskSource
from psofed.federation.protocol.wire import (
    ARRAYS,
    CONFIG,
    DESCRIBE,
    DESCRIBED,
    EVALUATE,
    FULL,
    LEARNED,
    LOST,
    METRICS,
    PART,
    SYNC,
    Instruction,
    Reply,
    decode_instruction,
    encode_reply,
)
from psofed.parts.network import Channel

ClientFunction = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, ClientFunction], Message]

PHASE, ELAPSED, ROUND = "psofed-phase", "psofed-elapsed", "server-round"
COLUMNS = "psofed-columns"
MISSED, CURRENT = "missed", "current"
STATE_DIRECTORY, NODE_NUMBER = "psofed-state", "psofed-number"
REMARK = "psofed-remark"
DIVERGED = (
    "training diverged: the model holds values that are not finite; a smaller stepsize or scaled data help"
)


class FindsColumns(Protocol):
    """A training function that finds its columns by the names in ``config["psofed-columns"]``, or refuses."""

    def columns(self) -> ColumnNames | None:
        """Return the names of its data's columns, None if they have none."""
        ...


def partial_sharing(
    *,
    state_directory: str | Path | None = None,
    catch_up: bool = False,
    masks: MaskSource | None = None,
    max_entries: int = MAX_ENTRIES,
    columns: ColumnNames | FindsColumns | None = None,
    links: Sequence[Channel] = (),
) -> Mod:
    """Return the mod that lets an ordinary training function take part in PSO-Fed.

    The training function gets the full model in ``message.content["arrays"]`` and returns the full model,
    as in any Flower app. The mod keeps the client's own model from round to round, overwrites the entries
    S_{k,n} that the server sent before training, and sends back only the entries S_{k,n+1}. The client's
    state changes only if training succeeds.

    Parameters
    ----------
    state_directory : path, optional
        Where the state is kept as well, so that it survives a restart of the node and of the server; if
        None, the node's setting ``psofed-state`` if it has one.
    catch_up : bool
        Call the training function twice if the client was left out for some rounds: once on its own model
        (``config["psofed-phase"]`` is ``"missed"``) for what arrived meanwhile, as the paper's unselected
        clients do, and once (``"current"``) after the server's entries have come in.
        ``config["psofed-elapsed"]`` is the number of rounds since its last one, this one included.
    masks : MaskSource, optional
        Masks supplied from outside, for checks; the strategy needs the same.
    max_entries : int
        Entries of a model, shared or not, that this client takes from a server.
    columns : ColumnNames or FindsColumns, optional
        Names of the columns that the training function learns from, in its order; the client refuses a run with
        other names or another order. Or a training function that finds its columns by name itself, as that of
        :func:`psofed.federation.online_regression` does. None: the columns have no names, nor may the run's.
    links : sequence of Channel, optional
        What happens to every upload before it leaves the client: ``psofed.channels.Private``, ``Quantised``, or both in
        this order. The privacy spent, (ε, δ), is part of every reply's metrics.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp()
    >>> @app.train(mods=[partial_sharing()])
    ... def train(message, context):
    ...     (weights,) = message.content["arrays"].to_numpy_ndarrays()
    ...     weights = weights + 1.0  # any training
    ...     records = {"arrays": ArrayRecord([weights]), "metrics": MetricRecord({"num-examples": 1})}
    ...     return Message(RecordDict(records), reply_to=message)
    """
    uplink = Uplink(tuple(links)) if links else None

    def mod(message: Message, context: Context, call_next: ClientFunction) -> Message:
        instruction = decode_instruction(message.content, max_entries)
        number = context.node_config.get(NODE_NUMBER)
        if number is not None and str(number) != str(instruction.node):
            raise PsofedError(f"the server addresses node {instruction.node}; this is node {number}")
        if instruction.kind == DESCRIBE:
            return Message(encode_reply(_describe(instruction, columns)), reply_to=message)
        directory = _directory(state_directory, context)
        working = copy.copy(context)
        working.state = copy_records(context.state)
        state = find_state(working, instruction.session, instruction.node, directory)
        config = _config_of(message)
        source = masks or instruction.masks
        if (
            message.metadata.message_type.split(".")[0] == MessageType.EVALUATE
            or instruction.kind == EVALUATE
        ):
            return _evaluate(message, working, call_next, state, config)
        if (
            state is not None
            and state.epoch == instruction.epoch
            and state.round_number == instruction.round_number
        ):
            # The server asks again, say after it was restarted: the same answer, and nothing learned twice.
            again = _send(uplink, _reply(state, source), working.state, state, source)
            return Message(encode_reply(again), reply_to=message)
        begun = _begin(instruction, state)
        if begun is None:
            lost = Reply(
                session=instruction.session,
                round_number=instruction.round_number,
                node=instruction.node,
                status=LOST,
            )
            return Message(encode_reply(lost), reply_to=message)
        layout, model, kept, elapsed = begun
        _check_columns(layout.columns, columns)
        said: dict[str, Any] = {}

        def train(
            model: Vector, kept: ArrayRecord, phase: str
        ) -> tuple[Vector, ArrayRecord, int, dict[str, Any]]:
            settings = {**config, ROUND: instruction.round_number, PHASE: phase, ELAPSED: elapsed}
            if layout.columns is not None:
                settings[COLUMNS] = layout.columns.to_text()
            message.content = RecordDict(
                {ARRAYS: layout.restore(model, kept), CONFIG: ConfigRecord(settings)}
            )
            reply = call_next(message, working)
            said.clear()
            said.update(reply.content.config_records.get(REMARK, {}))
            return _read_training(reply, layout)

        earlier_examples, earlier_metrics = 0, dict[str, Any]()
        if catch_up and elapsed > 1:
            model, kept, earlier_examples, earlier_metrics = train(model, kept, MISSED)
        indices = source.indices(instruction.round_number, instruction.node)
        assert instruction.values is not None  # decode_instruction gives values with every kind but EVALUATE
        whole = instruction.kind in (FULL, SYNC)
        received = instruction.values[indices] if whole else instruction.values
        model, kept, num_examples, metrics = train(overwrite(model, indices, received), kept, CURRENT)
        learned = ClientState(
            session=instruction.session,
            epoch=instruction.epoch,
            node=instruction.node,
            round_number=instruction.round_number,
            layout=layout,
            model=model,
            kept=kept,
            num_examples=earlier_examples + num_examples,
            metrics=_join(earlier_metrics, metrics),
        )
        if uplink is not None:
            known = np.arange(layout.dimension) if whole else indices
            when = f"{instruction.epoch} {instruction.round_number}"
            uplink.note(
                working.state, layout.dimension, known, np.asarray(instruction.values, np.float64), when
            )
        commit_state(working, learned, directory)
        context.state = working.state
        remark = str(said.get("always" if learned.num_examples else "text", ""))
        reply = replace(_reply(learned, source), remark=remark)
        reply = _send(uplink, reply, working.state, learned, source)
        return Message(encode_reply(reply), reply_to=message)

    return mod


def _begin(
    instruction: Instruction, state: ClientState | None
) -> tuple[ModelLayout, Vector, ArrayRecord, int] | None:
    """Return (layout, model, unshared arrays, elapsed rounds) to begin with, or None if the state is lost."""
    n = instruction.round_number
    if state is not None and state.epoch == instruction.epoch and state.round_number >= instruction.expected:
        fits = state.layout.dimension == instruction.masks.dimension
        if state.layout.digest != instruction.digest or not fits:
            raise PsofedError("the server's model has another layout than this client's")
        if instruction.kind == SYNC:
            return state.layout, np.array(instruction.values), state.kept, 1
        return state.layout, state.model, state.kept, max(1, n - state.round_number)
    if instruction.kind == PART:
        return None
    layout = instruction.layout
    if (
        layout is None
        or layout.digest != instruction.digest
        or layout.dimension != instruction.masks.dimension
    ):
        raise PsofedError("the server sent no layout of its model, or one that does not fit")
    if instruction.kind in (FULL, SYNC):
        # What arrived before is learned on top of the server's model: there is no older one to learn on.
        return layout, np.array(instruction.values), ArrayRecord(), 1
    return layout, np.zeros(layout.dimension, dtype=layout.dtype), ArrayRecord(), n


def _describe(instruction: Instruction, columns: ColumnNames | FindsColumns | None) -> Reply:
    """Return what the client's columns are called."""
    remark = ""
    try:
        named = columns if columns is None or isinstance(columns, ColumnNames) else columns.columns()
    except NoDataYetError as error:
        named, remark = None, str(error)
    return Reply(
        session=instruction.session,
        round_number=instruction.round_number,
        node=instruction.node,
        status=DESCRIBED,
        columns=named,
        remark=remark,
    )


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


def _reply(state: ClientState, source: MaskSource) -> Reply:
    return Reply(
        session=state.session,
        round_number=state.round_number,
        node=state.node,
        status=LEARNED,
        digest=state.layout.digest,
        values=state.model[source.indices(state.round_number + 1, state.node)],
        num_examples=state.num_examples,
        metrics=state.metrics,
    )


def _send(
    uplink: Uplink | None, reply: Reply, records: RecordDict, state: ClientState, source: MaskSource
) -> Reply:
    """Return the reply as it leaves the client."""
    if uplink is None:
        return reply
    entries = source.indices(state.round_number + 1, state.node)
    return uplink.send(reply, records, state.layout.dimension, np.asarray(entries, np.int64))


def _read_training(reply: Message, layout: ModelLayout) -> tuple[Vector, ArrayRecord, int, dict[str, Any]]:
    """Take model, examples and metrics out of what the training function returned, or say what it lacks."""
    records = list(reply.content.array_records.values())
    if len(records) != 1:
        raise PsofedError(f"training must return one ArrayRecord with the full model, not {len(records)}")
    try:
        model = layout.flatten(records[0])
    except ValueError as error:
        raise PsofedError(f"training returned another model than it was given: {error}") from None
    if not np.isfinite(model).all():
        raise PsofedError(DIVERGED)
    metrics: dict[str, Any] = {}
    for record in reply.content.metric_records.values():
        metrics |= dict(record)
    num_examples = metrics.pop("num-examples", 0)
    return model, layout.kept(records[0]), int(num_examples), metrics


def _evaluate(
    message: Message,
    context: Context,
    call_next: ClientFunction,
    state: ClientState | None,
    config: dict[str, Any],
) -> Message:
    """Evaluate the client's own model; nothing is overwritten and nothing committed."""
    if state is None:
        raise PsofedError("this client has no model of its own yet")
    message.content = RecordDict(
        {
            ARRAYS: state.layout.restore(state.model, state.kept),
            CONFIG: ConfigRecord({**config, ROUND: state.round_number}),
        }
    )
    reply = call_next(message, context)
    metrics: dict[str, Any] = {}
    for record in reply.content.metric_records.values():
        metrics |= dict(record)
    return Message(RecordDict({METRICS: MetricRecord(metrics)}), reply_to=message)


def _join(missed: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    """Join the metrics of both phases: lists one after the other, scalars of the current phase."""
    joined = {**missed, **current}
    for name, value in current.items():
        if isinstance(value, list) and isinstance(earlier := missed.get(name), list):
            joined[name] = earlier + value
    return joined


def _config_of(message: Message) -> dict[str, Any]:
    record = message.content.get(CONFIG)
    return dict(record) if isinstance(record, ConfigRecord) else {}


def _directory(given: str | Path | None, context: Context) -> Path | None:
    named = given if given is not None else context.node_config.get(STATE_DIRECTORY)
    return None if named is None else Path(str(named))
