"""A node's work for its clients: each client that an instruction names learns, and one reply answers for all.

A gateway has many clients; any other node has one without a name, which is handled the same way.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.logs import OncePerChange, log
from psofed.federation.client.state import ClientState, MemoryStore
from psofed.federation.protocol import messages
from psofed.federation.protocol.corruption import EVERYBODY, check_rehearsal, draw_attack, draw_normals
from psofed.federation.protocol.layout import Arrays, ModelLayout, Vector
from psofed.federation.protocol.masks import Indices
from psofed.federation.protocol.messages import ClientTask, Instruction, NodeReply, Reply
from psofed.federation.protocol.names import check_client_names, clean_text, client_number, node_number
from psofed.parts.base import Attack
from psofed.parts.channels.built_in import Private
from psofed.parts.contexts import Transmission
from psofed.parts.plain import corrupt_uploads
from psofed.render.numbers import listed

MISSED, CURRENT = "missed", "current"
PRIVACY = "psofed.privacy"


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
        What the training keeps; see :class:`psofed.federation.client.state.ClientState`.
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
Corruption = Callable[[Instruction, ClientTask, Vector, Vector], Vector]
"""Given an instruction, a task, the honest upload and the server's values at the same entries as the client downloaded
them last (NaN where it never did), returns what a Byzantine client uploads instead."""


@dataclass(frozen=True)
class Rehearsal:
    """Makes a node Byzantine: rehearses an attack on one's own federation.

    A Byzantine node changes what it uploads and nothing else: as in the paper, its own model stays clean.

    Parameters
    ----------
    attack : Attack
        What it does; with its `probability` in each round. That it is one of `num_byzantine` plays no part.
    seed : int
        With client and round it gives the draws, so a repeated round repeats its attack.

    Examples
    --------
    >>> from psofed.attacks import ConstantBias
    >>> corruption = Rehearsal(ConstantBias(num_byzantine=1, bias=0.5))
    """

    attack: Attack
    seed: int = 0

    def __post_init__(self) -> None:
        check_rehearsal(self.attack)

    def __call__(self, instruction: Instruction, task: ClientTask, values: Vector, server: Vector) -> Vector:
        """Return what is uploaded instead of `values`."""
        n, client = instruction.round_number, client_number(node_number(instruction.node), task.client)
        attacks, normals = draw_attack(self.attack, self.seed, client, n, values.size)
        if not attacks:
            return values
        received = corrupt_uploads(
            self.attack, uploads=np.asarray(values, np.float64)[None], attacking=np.array([True]),
            server=np.asarray(np.where(np.isnan(server), values, server), np.float64), clients=np.array([client]),
            iteration=n, normals=normals[None], num_clients=1, memory=None, group=np.array([client]),
            common_normals=draw_normals(self.seed, EVERYBODY, n, values.size),
        )  # fmt: skip
        return np.asarray(received[0], values.dtype)


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
    arrived : callable, optional
        Lets all clients learn from what has arrived since they were last called.
    """

    training: Training
    catch_up: bool = False
    clients: Callable[[], Sequence[str]] | None = None
    privacy: Private | None = None
    corruption: Corruption | None = None
    arrived: Callable[[MemoryStore], None] | None = None
    _is_news: OncePerChange = field(default_factory=OncePerChange, init=False, repr=False, compare=False)

    def names(self) -> tuple[str, ...] | None:
        """Return the clients of a gateway; None if the node is not a gateway."""
        return None if self.clients is None else check_client_names(self.clients(), gateway=True)

    def answer(self, instruction: Instruction, store: MemoryStore) -> NodeReply:
        """Return the reply to an instruction.

        What a client keeps changes only if its training succeeds. Where several are asked, one whose training fails
        reports it, and the others continue; where one is asked, the exception is raised to the caller.
        """
        names = self.names()
        if self._is_news("refused", refused := listed(instruction.refused)) and refused:
            log.warning(
                "the server refuses clients that belong to other nodes, or are more than this node may have: %s",
                refused,
            )
        memory = store.recall(instruction.session, instruction.node)
        replies: list[Reply] = []
        changed: dict[str, ClientState] = {}
        digest = ""
        for task in instruction.tasks:
            if task.client not in (("",) if names is None else names):
                replies.append(Reply(messages.LEFT, task.client))
                continue
            try:
                reply, state = self._train(instruction, task, memory.clients.get(task.client))
            except Exception as error:
                if len(instruction.tasks) == 1:
                    raise
                reply, state = Reply(messages.FAILED, task.client, remark=reason_of(error)), None
                log.warning("round %d: %s failed: %s", instruction.round_number, task.client, reply.remark)
            if state is not None:
                changed[task.client], digest = state, state.layout.digest
            replies.append(reply)
        if any(state is not memory.clients.get(client) for client, state in changed.items()):
            store.commit(memory, changed)
        answered = instruction.session, instruction.round_number, instruction.sequence
        return NodeReply(*answered, tuple(replies), digest)

    def _train(
        self, instruction: Instruction, task: ClientTask, state: ClientState | None
    ) -> tuple[Reply, ClientState | None]:
        """Return a client's reply, and its state if it has learned."""
        n = instruction.round_number
        if state is not None and (instruction.epoch, n) <= (state.epoch, state.round_number):
            if (instruction.epoch, n) < (state.epoch, state.round_number):
                raise PsofedError(
                    f"asked for round {n}, after having worked in round {state.round_number}: an old instruction, or "
                    "a server that lost rounds, which a rollback repairs"
                )
            # The server asks again, say after it was restarted: the same answer, and nothing learned twice.
            return self._reply(instruction, task, state), state
        begun = _begin(instruction, task, state)
        if begun is None:
            return Reply(messages.LOST, task.client), None
        layout, model, kept, elapsed = begun
        records: Mapping[str, Any] = {} if state is None else state.records
        examples, reported = 0, dict[str, Any]()

        def train(phase: str, model: Vector, kept: Arrays, records: Mapping[str, Any]) -> TrainingResult:
            request = TrainingRequest(task.client, phase, n, elapsed, layout, model, kept, records, instruction.config)
            return self.training(request)

        if self.catch_up and elapsed > 1:
            missed = train(MISSED, model.copy(), kept, records)
            model, kept, records = check_finite(missed.model), missed.kept, missed.records
            examples, reported = missed.num_examples, dict(missed.metrics)
        indices, whole = _indices(instruction, task, n), task.kind == messages.FULL
        model = model.copy()
        model[indices] = task.values[indices] if whole else task.values  # (I − S_{k,n}) w_k + S_{k,n} w_n
        learned = train(CURRENT, model, kept, records)
        examples += learned.num_examples
        metrics, records, downloaded = _join(reported, learned.metrics), learned.records, None
        if self.privacy is not None or self.corruption is not None:
            before = None if state is None else state.downloaded
            downloaded = np.full(layout.dimension, np.nan) if before is None else before.copy()
            downloaded[slice(None) if whole else indices] = task.values
        if self.privacy is not None:
            spent = records.get(PRIVACY) or {"secret": secrets.token_hex(32), "uploads": 0}
            records = {**records, PRIVACY: {**spent, "uploads": spent["uploads"] + 1}}
        model = check_finite(learned.model)
        following = ClientState(
            instruction.epoch, n, layout, model, learned.kept, examples, metrics, records, downloaded
        )
        return self._reply(instruction, task, following, learned.warning if examples else learned.remark), following

    def _reply(self, instruction: Instruction, task: ClientTask, state: ClientState, remark: str = "") -> Reply:
        """Return the reply of a client that has learned, as it leaves the node."""
        entries = _indices(instruction, task, state.round_number + 1)
        values, metrics = state.model[entries], state.metrics
        server = np.full(entries.size, np.nan) if state.downloaded is None else state.downloaded[entries]
        if self.corruption is not None:
            values = self.corruption(instruction, task, values, server)
        elif self.privacy is not None:
            values, spent = make_private(self.privacy, state, values, server)
            metrics = {**metrics, **spent}
        return Reply(messages.LEARNED, task.client, values, state.num_examples, metrics, remark)


def make_private(channel: Private, state: ClientState, values: Vector, server: Vector) -> tuple[Vector, dict[str, Any]]:
    """Return an upload clipped and with noise, as it leaves the client, and the privacy spent so far.

    With z = u − g the update of the entries that are shared, u the upload and g the server's values as last downloaded
    (zeros where they never were), the server receives g + z · min(1, C/‖z‖) + N(0, (m C)² I); see
    :class:`psofed.channels.Private`. An answer that is asked for again is the same, and costs no privacy.
    """
    from psofed.results.privacy import gaussian_epsilon  # 2 MB that only private clients need

    if PRIVACY not in state.records:
        raise PsofedError(f"round {state.round_number} was learned before uploads were private: the next one is sent")
    record, nothing = state.records[PRIVACY], np.zeros(0)
    digest = hashlib.sha256(f"{record['secret']} {state.epoch} {state.round_number}".encode()).digest()
    normals = np.random.default_rng(np.frombuffer(digest, np.uint32)).standard_normal(values.size)
    upload, known, out = np.asarray(values, np.float64), np.nan_to_num(server), np.empty(values.size)
    channel.transmit(Transmission(upload, known, np.arange(values.size), 0, 0, normals, nothing, 0.0), out)
    epsilon = gaussian_epsilon(channel.multiplier, record["uploads"], channel.delta)
    spent = {"privacy-epsilon": epsilon, "privacy-delta": channel.delta, "privacy-uploads": record["uploads"]}
    return out.astype(values.dtype), spent


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
        return state.layout, state.model, state.kept, n - state.round_number
    if task.kind == messages.PART:
        return None
    layout = instruction.layout
    if layout is None or layout.digest != instruction.digest or layout.dimension != instruction.masks.dimension:
        raise PsofedError("the server sent no layout of its model, or one that does not fit")
    if task.kind == messages.FULL:
        # What arrived before is learned on top of the server's model: there is no older one to learn on.
        return layout, np.array(task.values), {}, 1
    return layout, np.zeros(layout.dimension, dtype=layout.dtype), {}, n


def _indices(instruction: Instruction, task: ClientTask, n: int) -> Indices:
    return instruction.masks.indices(n, client_number(node_number(instruction.node), task.client))


def check_finite(model: Vector) -> Vector:
    """Return a model, or raise a PsofedError if training has diverged."""
    if not np.isfinite(model).all():
        raise PsofedError(
            "training diverged: the model holds values that are not finite; a smaller stepsize or scaled data help"
        )
    return model


def _join(missed: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Join the metrics of both phases: lists one after the other, scalars of the current phase."""
    joined = {**missed, **current}
    for name, value in current.items():
        if isinstance(value, list) and isinstance(earlier := missed.get(name), list):
            joined[name] = earlier + value
    return joined
