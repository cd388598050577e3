"""The client's side in Flower: a mod that turns ordinary full-model training into partial sharing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from psofed.common.errors import PsofedError
from psofed.common.logs import log
from psofed.federation.client.gateway import Corruption, Gateway, TrainingRequest, TrainingResult, reason_of
from psofed.federation.client.state import MemoryStore, NodeMemory
from psofed.federation.flower.models import RECORD, arrays_of, frame_of, numpy_of, wrap_frame
from psofed.federation.protocol.bounds import MAX_ENTRIES
from psofed.federation.protocol.layout import ColumnNames
from psofed.federation.protocol.messages import NodeReply, decode_instruction, encode_reply
from psofed.parts.channels.built_in import Private

ClientFunction = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, ClientFunction], Message]

_MEMORY = "memory"  # in the record that the mod keeps in context.state


def partial_sharing(
    *,
    state_directory: str | Path | None = None,
    catch_up: bool = False,
    columns: ColumnNames | None = None,
    privacy: Private | None = None,
    corruption: Corruption | None = None,
    max_entries: int = MAX_ENTRIES,
) -> Mod:
    """Return the mod that lets an ordinary training function take part in PSO-Fed.

    The training function gets the full model in ``message.content["arrays"]`` and returns the full model, as in any
    Flower app. The mod keeps the client's own model from round to round in ``context.state``, overwrites the entries
    S_{k,n} that the server sent before training, and sends back only the entries S_{k,n+1}. If training fails, neither
    the model nor ``context.state`` changes.

    Parameters
    ----------
    state_directory : path, optional
        Where the client's model is kept as well, so that it survives a restart of the SuperNode.
    catch_up : bool
        Call the training function twice if the client was left out for some rounds: once on its own model
        (``config["psofed-phase"]`` is ``"missed"``) for what arrived meanwhile, as the paper's unselected clients do,
        and once (``"current"``) after the server's entries have come in. ``config["psofed-elapsed"]`` is the number of
        rounds since its last one, this one included.
    columns : ColumnNames, optional
        Names of the columns that the training function learns from; a run with others, or another order, is refused.
    privacy, corruption
        See :class:`psofed.federation.client.gateway.Gateway`.
    max_entries : int
        Entries of a model, shared or not, that this client takes from a server.

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
    folder = None if state_directory is None else Path(state_directory)
    recent: dict[int, tuple[bytes, NodeMemory]] = {}  # by node: what this process has written into its state

    def mod(message: Message, context: Context, call_next: ClientFunction) -> Message:
        frame = frame_of(message.content)
        if frame is None:
            raise PsofedError("this message is not PSOFed's: partial_sharing() needs it as the strategy")
        instruction = decode_instruction(frame, max_entries)
        if instruction.node != str(context.node_id):
            raise PsofedError(f"this message is for node {instruction.node}, not {context.node_id}")

        def train(request: TrainingRequest) -> TrainingResult:
            if (run := request.layout.columns) != columns:
                names = [layout or "without names" for layout in (columns, run)]
                raise PsofedError(f"this client's columns are {names[0]}; the run's are {names[1]}")
            message.content = _training_content(request)
            return _read_result(call_next(message, context), request)

        gateway = Gateway(train, catch_up, None, privacy, corruption)
        before = dict(context.state)
        kept = _kept(context)
        written, memory = recent.get(context.node_id, (b"", None))
        if kept != written:
            memory = NodeMemory.from_bytes(kept, "context.state") if kept else None
        store = MemoryStore(folder, memory)
        try:
            reply = gateway.answer(instruction, store)
            if store.held is not None:
                recent[context.node_id] = store.held.to_bytes(), store.held
                context.state[RECORD] = ConfigRecord({_MEMORY: recent[context.node_id][0]})
        except Exception as error:
            # It is said here with all details, and told to the server in one line.
            log.warning("round %d failed", instruction.round_number, exc_info=True)
            context.state = RecordDict(before)
            reply = NodeReply.failure(instruction, reason_of(error))
        return Message(wrap_frame(encode_reply(reply)), reply_to=message)

    return mod


def _kept(context: Context) -> bytes:
    """Return what the mod has kept in the node's state; empty at the beginning."""
    record = context.state.get(RECORD)
    kept = record.get(_MEMORY) if isinstance(record, ConfigRecord) else None
    return kept if isinstance(kept, bytes) else b""


def _training_content(request: TrainingRequest) -> RecordDict:
    """Return the content of the message that the training function gets."""
    layout = request.layout
    config: dict[str, Any] = {
        **request.config,
        "server-round": request.round_number,
        "psofed-phase": request.phase,
        "psofed-elapsed": request.elapsed,
    }
    if layout.columns is not None:
        config["psofed-columns"] = json.dumps(layout.columns.to_mapping())
    arrays = arrays_of(layout.restore(request.model, request.kept))
    return RecordDict({"arrays": arrays, "config": ConfigRecord(config)})


def _read_result(reply: Message, request: TrainingRequest) -> TrainingResult:
    """Return what a training function has replied, or say what it lacks."""
    if reply.has_error():
        raise PsofedError(f"training failed: {reply.error.reason}")
    records = reply.content.values()
    models = [record for record in records if isinstance(record, ArrayRecord)]
    if len(models) != 1:
        raise PsofedError(f"training must return one ArrayRecord with the full model, not {len(models)}")
    metrics: dict[str, Any] = {}
    for record in records:
        if isinstance(record, MetricRecord):
            metrics |= record
    examples = int(metrics.pop("num-examples", 0))
    arrays = numpy_of(models[0])
    try:
        model, kept = request.layout.flatten(arrays), request.layout.kept(arrays)
    except ValueError as error:
        raise PsofedError(f"training returned another model than it was given: {error}") from None
    return TrainingResult(model, kept, request.records, examples, metrics)
