"""The client's side: a Flower mod that turns ordinary full-model training into partial sharing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict

from psofed.common.errors import PsofedError
from psofed.federation.client.gateway import EVALUATION, FindsColumns, Gateway, Learned, Lesson
from psofed.federation.client.state import to_records
from psofed.federation.client.uplink import Uplink
from psofed.federation.flower import fill, plain
from psofed.federation.protocol.bounds import MAX_ENTRIES
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.layout import ModelLayout, Vector
from psofed.federation.protocol.masks import MaskSource
from psofed.federation.protocol.wire import ARRAYS, CONFIG
from psofed.parts.network import Channel

ClientFunction = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, ClientFunction], Message]

PHASE, ELAPSED, ROUND = "psofed-phase", "psofed-elapsed", "server-round"
COLUMNS, CLIENT = "psofed-columns", "psofed-client"
STATE_DIRECTORY = "psofed-state"
REMARK = "psofed-remark"


def partial_sharing(
    *,
    state_directory: str | Path | None = None,
    catch_up: bool = False,
    masks: MaskSource | None = None,
    max_entries: int = MAX_ENTRIES,
    columns: ColumnNames | FindsColumns | None = None,
    links: Sequence[Channel] = (),
    clients: Sequence[str] | Callable[[], Sequence[str]] | None = None,
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
    clients : sequence of str or callable, optional
        Make the node a gateway for clients of these names, each with its own model: the training function is called
        for one at a time, named by ``config["psofed-client"]``, with its own ``context.state``. A function that
        returns the names is called for every message, so that clients can come and go.

    Examples
    --------
    >>> from flwr.app import MetricRecord
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp()
    >>> @app.train(mods=[partial_sharing()])
    ... def train(message, context):
    ...     (weights,) = message.content["arrays"].to_numpy_ndarrays()
    ...     weights = weights + 1.0  # any training
    ...     records = {"arrays": ArrayRecord([weights]), "metrics": MetricRecord({"num-examples": 1})}
    ...     return Message(RecordDict(records), reply_to=message)
    """
    gateway = Gateway(
        catch_up=catch_up,
        masks=masks,
        max_entries=max_entries,
        columns=columns,
        uplink=Uplink(tuple(links)) if links else None,
        clients=clients if clients is None or callable(clients) else lambda: clients,
    )

    def mod(message: Message, context: Context, call_next: ClientFunction) -> Message:
        record = plain(message.content).get(CONFIG)
        config = plain(record) if isinstance(record, ConfigRecord) else {}
        training = _FlowerTraining(call_next, message, context, config)
        evaluates = message.metadata.message_type.split(".")[0] == MessageType.EVALUATE
        content = gateway.answer(
            message.content, context, state_folder(context, state_directory), training, evaluates
        )
        reply, question = training.reply, message.metadata.message_id
        if reply is None or reply.metadata.reply_to_message_id != question:
            return Message(content, reply_to=message)
        reply.content = content
        return reply

    return mod


@dataclass(eq=False)
class _FlowerTraining:
    """A Flower training function, called for one client after the other, and the reply it gave last."""

    function: ClientFunction
    message: Message
    context: Context
    config: dict[str, Any]
    reply: Message | None = None

    def __call__(self, lesson: Lesson) -> Learned:
        layout, settings = lesson.layout, {**self.config, ROUND: lesson.round_number}
        if lesson.phase != EVALUATION:
            settings |= {PHASE: lesson.phase, ELAPSED: lesson.elapsed}
        if lesson.client:
            settings[CLIENT] = lesson.client
        if layout.columns is not None:
            settings[COLUMNS] = layout.columns.to_text()
        arrays = layout.restore(lesson.model, lesson.kept, lesson.again)
        self.message.content = fill(RecordDict, {ARRAYS: arrays, CONFIG: fill(ConfigRecord, settings)})
        working: Context = Context.__new__(Context)  # copy.copy takes ten times as long
        working.__dict__.update(self.context.__dict__, state=to_records(lesson.records))
        reply = self.function(self.message, working)
        records = plain(reply.content)
        self.reply = reply
        models: list[ArrayRecord] = []
        metrics: dict[str, Any] = {}
        for record in records.values():
            if isinstance(record, ArrayRecord):
                models.append(record)
            elif isinstance(record, MetricRecord):
                metrics |= plain(record)
        num_examples = int(metrics.pop("num-examples", 0))
        if lesson.phase == EVALUATION:
            return Learned(lesson.model, lesson.kept, lesson.records, num_examples, metrics)
        remark = records.get(REMARK)
        said = plain(remark) if isinstance(remark, ConfigRecord) else {}
        model, kept = _read_model(models, layout)
        return Learned(
            model,
            kept,
            dict(plain(working.state)),
            num_examples,
            metrics,
            remark=str(said.get("text", "")),
            warning=str(said.get("always", "")),
        )


def _read_model(records: Sequence[ArrayRecord], layout: ModelLayout) -> tuple[Vector, ArrayRecord]:
    """Return the model that the training function returned, or say what it lacks."""
    if len(records) != 1:
        raise PsofedError(f"training must return one ArrayRecord with the full model, not {len(records)}")
    try:
        return layout.flatten(records[0]), layout.kept(records[0])
    except ValueError as error:
        raise PsofedError(f"training returned another model than it was given: {error}") from None


def state_folder(context: Context, given: str | Path | None = None) -> Path | None:
    """Return where a node keeps its state: the folder given, that of its settings, or none."""
    named = given if given is not None else context.node_config.get(STATE_DIRECTORY)
    return None if named is None else Path(str(named))
