"""PSO-Fed as a Flower strategy: thin, with its arithmetic in :mod:`psofed.federation.aggregate`."""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from psofed.common.errors import InvalidValueError, NotCoveredError, PsofedError
from psofed.common.validation import check_boolean, check_choice, check_integer, check_number
from psofed.federation.aggregate import aggregate
from psofed.federation.attacks import Rehearsal
from psofed.federation.checkpoint import KEEP, CheckpointStore, ServerState
from psofed.federation.checks import Conduct, ReplyLimits
from psofed.federation.exchange import Exchange
from psofed.federation.layout import Layout, Vector
from psofed.federation.masks import (
    DERIVATION,
    MAX_SEED,
    PATTERNS,
    DerivedMasks,
    Indices,
    MaskSource,
    resolve_num_shared,
)
from psofed.federation.models import arrays_of
from psofed.federation.nodes import Node, nodes_of
from psofed.federation.participants import DerivedParticipants, ParticipantSource
from psofed.federation.plausibility import Plausibility
from psofed.federation.replies import Expectation, sort_replies
from psofed.federation.rounds import average_metrics, describe_round, finite_metrics, mean_of
from psofed.federation.wire import (
    EVALUATE,
    FULL,
    LOST,
    PART,
    START,
    SYNC,
    BadReplyError,
    Instruction,
    Reply,
    encode_instruction,
)
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Aggregation, Attack, Pattern
from psofed.scenario.scenario import as_part

NEWCOMERS = ("current", "zeros")

_log = logging.getLogger("psofed.federation")


def check_rule(rule: Aggregation) -> Aggregation:
    """Refuse a rule that needs what a federation has not."""
    if rule.has_root_data:
        raise NotCoveredError(
            f'aggregation = "{rule.kind}" needs root data of the server, which a federation has not'
        )
    return rule


class PSOFed(Strategy):
    """Partial sharing of any model's parameters, resilient to model poisoning.

    In round n each participant k gets the server's entries S_{k,n}, learns, and sends back its entries
    S_{k,n+1}; the server averages, over participants, the uploaded entry or its own where none was
    uploaded. Clients must run with :func:`psofed.federation.partial_sharing`.

    Parameters
    ----------
    num_shared : int or float
        M: a count, or a fraction of the model as a float in (0, 1].
    pattern : str, or psofed.patterns.Random() or RoundRobin()
        ``"random"`` or ``"round-robin"``: both sides derive the same masks, so no others are known here.
    coordinated : bool
        One mask for all clients, or one for each.
    seed : int
        Seed of masks and participants.
    num_participants : int, optional
        |S_n|; all nodes that are there if None.
    min_nodes : int
        Nodes to wait for before the first round; later rounds wait for one.
    wait_for_nodes : float
        Seconds to wait for them; then it goes on with those there are, and without any the run ends.
    newcomers : str
        What a client gets when it is met for the first time: ``"current"``, the full model once; or
        ``"zeros"``, nothing but its share: it starts from zero, as every client of the paper does.
    include, exclude : sequence of str
        Patterns (``fnmatch``) of the names of arrays to share; by default all floating ones. What is not shared
        stays with each client.
    sync_every : int
        Send the full model to all participants of every so many rounds; 0 for never. It costs what it says, and
        undoes what the clients' own models have on top of the server's.
    weighted : bool
        Weigh clients by their number of examples. The paper does not, and a liar would profit. Only with the mean.
    aggregation : Aggregation, or its name
        How uploads are put together, on the entries that each participant shared: ``psofed.aggregations.Median()``,
        or one of your own. The mean by default, which one clever liar can lead away; see docs/resilience.md.
    rehearsal : Attack, optional
        Try an attack on your own federation: the uploads of the Byzantine nodes are corrupted here, after they have
        arrived and before they are judged, by an attacker who sees whatever the attack says it knows. The nodes are
        those that ``attack.clients`` names, or the first `num_byzantine` by name. (A node can also lie by itself:
        :func:`psofed.federation.rehearse`.)
    limits : ReplyLimits
        Bounds on what a reply may hold, and when a node is benched.
    checkpoint : path, optional
        Where to keep the state after each round.
    keep : int
        How many checkpoints to keep: the last so many rounds, as many of every tenth, of every hundredth, ….
    resume : bool
        Go on from `checkpoint`; :meth:`start` then counts its `num_rounds` from the very first round.
    evaluate_every : int
        Let the participants evaluate their own models every so many rounds; 0 for never.
    masks, participants : MaskSource, ParticipantSource, optional
        Draws supplied from outside, for checks; the clients' mod needs the same masks.
    on_round : callable, optional
        Called with the :class:`ServerState` after each completed round.

    Examples
    --------
    >>> strategy = PSOFed(num_shared=0.1, num_participants=5, seed=1)
    >>> strategy.pattern
    'random'

    In a ServerApp: ``strategy.start(grid=grid, initial_arrays=model.state_dict(), num_rounds=100)``.
    """

    def __init__(
        self,
        num_shared: float = 0.1,
        *,
        pattern: Pattern | str = "random",
        coordinated: bool = True,
        seed: int = 0,
        num_participants: int | None = None,
        min_nodes: int = 1,
        wait_for_nodes: float = 60.0,
        newcomers: str = "current",
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        sync_every: int = 0,
        weighted: bool = False,
        aggregation: Aggregation | str = "mean",
        rehearsal: Attack | None = None,
        limits: ReplyLimits | None = None,
        checkpoint: str | Path | None = None,
        keep: int = KEEP,
        resume: bool = False,
        evaluate_every: int = 0,
        masks: MaskSource | None = None,
        participants: ParticipantSource | None = None,
        on_round: Callable[[ServerState], None] | None = None,
    ) -> None:
        resolve_num_shared(num_shared, 1) if isinstance(num_shared, float) else check_integer(
            "num_shared", num_shared, 1
        )
        self.num_shared = num_shared
        kind = pattern.kind if isinstance(pattern, Pattern) else pattern
        self.pattern = check_choice("pattern", kind, PATTERNS)
        self.coordinated = check_boolean("coordinated", coordinated)
        self.seed = check_integer("seed", seed, 0, MAX_SEED)
        self.num_participants = (
            None if num_participants is None else check_integer("num_participants", num_participants, 1)
        )
        self.min_nodes = check_integer("min_nodes", min_nodes, 1)
        self.wait_for_nodes = check_number("wait_for_nodes", wait_for_nodes, 0)
        self.newcomers = check_choice("newcomers", newcomers, NEWCOMERS)
        self.include, self.exclude = _patterns("include", include), _patterns("exclude", exclude)
        self.sync_every = check_integer("sync_every", sync_every, 0)
        self.weighted = check_boolean("weighted", weighted)
        self.aggregation: Aggregation = check_rule(as_part("aggregation", aggregation))
        if self.weighted and not isinstance(self.aggregation, Mean):
            raise InvalidValueError("weighted", True, f'false with aggregation = "{self.aggregation.kind}"')
        self.rehearsal = None if rehearsal is None else Rehearsal(as_part("attack", rehearsal), self.seed)
        self.limits = limits or ReplyLimits()
        check_integer("keep", keep, 1)
        self.checkpoints = None if checkpoint is None else CheckpointStore(Path(checkpoint), keep)
        self.resume = check_boolean("resume", resume)
        self.evaluate_every = check_integer("evaluate_every", evaluate_every, 0)
        if resume and checkpoint is None:
            raise InvalidValueError("resume", True, "true together with a checkpoint")
        self.on_round = on_round
        self.conduct = Conduct(self.limits)
        self.plausibility = Plausibility(self.limits.max_deviation)
        self.state: ServerState | None = None
        self._supplied_masks = masks
        self._participants: ParticipantSource = participants or DerivedParticipants(self.seed)
        self._exchange = Exchange()
        self._asked: list[Message] = []
        self._nodes: dict[int, Node] = {}
        self._unreadable: set[str] = set()
        self._begun = False
        self._round_started = time.monotonic()

    def summary(self) -> None:
        """Log the settings."""
        _log.info("PSO-Fed: %s", ", ".join(f"{name} {value}" for name, value in self._settings().items()))

    # --- the loop ---------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: Any,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds up to `num_rounds`, each for at most `timeout` seconds, and return Flower's result.

        As in Flower's own strategies, but that a round ends at its deadline whoever is missing, that
        unreadable replies harm nobody, and that a run can be resumed. `initial_arrays` may be anything
        that :func:`psofed.federation.arrays_of` takes.
        """
        check_integer("num_rounds", num_rounds, 1)
        check_number("timeout", timeout, 0, open_low=True)
        state = self._begin(arrays_of(initial_arrays))
        self._exchange.bell.say_size(state.model.nbytes)
        self.summary()
        result = Result()
        arrays = state.layout.restore(state.model, state.kept)
        if evaluate_fn and state.round_number == 0 and (found := evaluate_fn(0, arrays)) is not None:
            result.evaluate_metrics_serverapp[0] = found
        for round_number in range(state.round_number + 1, num_rounds + 1):
            answers = self._ask(
                grid,
                self.configure_train(round_number, arrays, train_config or ConfigRecord(), grid),
                timeout,
            )
            averaged, metrics = self.aggregate_train(round_number, answers)
            arrays = arrays if averaged is None else averaged
            result.train_metrics_clientapp[round_number] = metrics or MetricRecord()
            questions = list(
                self.configure_evaluate(round_number, arrays, evaluate_config or ConfigRecord(), grid)
            )
            if questions and (
                own := self.aggregate_evaluate(
                    round_number, self._exchange(grid, questions, timeout, self._nodes).replies
                )
            ):
                result.evaluate_metrics_clientapp[round_number] = own
                state.history[-1]["client_evaluation"] = finite_metrics(own)
            if evaluate_fn and (found := evaluate_fn(round_number, arrays)) is not None:
                result.evaluate_metrics_serverapp[round_number] = found
                state.history[-1]["evaluation"] = finite_metrics(found)
            self._complete()
        result.arrays = arrays
        return result

    def _ask(self, grid: Grid, messages: Iterable[Message], timeout: float) -> list[Message]:
        answers = self._exchange(grid, list(messages), timeout, self._nodes)
        self._unreadable = answers.unreadable
        return answers.replies

    def _begin(self, initial: ArrayRecord) -> ServerState:
        layout = Layout.of(initial, self.include, self.exclude)
        if self.resume and self.checkpoints is not None:
            state = self.checkpoints.load()
            if state.layout != layout:
                raise PsofedError(f"{self.checkpoints.path} holds another model than the one given")
            changed = [name for name, value in self._settings().items() if state.settings.get(name) != value]
            if changed:
                was = ", ".join(f"{name} = {state.settings.get(name)}" for name in changed)
                raise PsofedError(
                    f"{self.checkpoints.path} was made with {was}; a resumed run must keep that"
                )
            self.conduct = Conduct.from_mapping(state.conduct, self.limits)
            self.plausibility = Plausibility(self.limits.max_deviation, state.scale)
            self.state = state
            _log.info("resumed after round %d", state.round_number)
        else:
            self.state = self._fresh_state(initial, layout)
        return self.state

    def _fresh_state(self, initial: ArrayRecord, layout: Layout) -> ServerState:
        resolve_num_shared(self.num_shared, layout.dimension)
        return ServerState(
            session=uuid.uuid4().hex,
            settings=self._settings(),
            round_number=0,
            model=layout.flatten(initial),
            layout=layout,
            kept=layout.kept(initial),
        )

    def _complete(self) -> None:
        state = self._current()
        if self.checkpoints is not None:
            self.checkpoints.save(state)
        if self.on_round is not None:
            self.on_round(state)

    # --- one round --------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the participants S_n and address to each its entries S_{k,n} of the server's model."""
        if self.state is None:
            # Run by another loop than ours.
            self.state = self._fresh_state(arrays, Layout.of(arrays, self.include, self.exclude))
        state = self.state
        state.model = state.layout.flatten(arrays)
        nodes = self._wait_for_nodes(grid, server_round)
        numbers = {node.number: node for node in nodes}
        drawn = self._participants.draw(server_round, list(numbers), self.num_participants or len(nodes))
        self._round_started = time.monotonic()
        self._asked = [self._instruct(numbers[number], server_round, config) for number in drawn]
        return list(self._asked)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the valid replies; without any the model stays as it was."""
        state = self._current()
        expected = Expectation(
            state.session, server_round, self._num_shared(), state.layout.dtype, self.limits
        )
        valid, bad = sort_replies(replies, self._asked, self._unreadable, expected)
        self._unreadable = set()
        replies_by_name = {self._node(node_id).name: reply for node_id, reply in valid.items()}
        dropped = [(self._node(node_id).name, error) for node_id, error in bad]
        uploads = self._uploads(server_round, replies_by_name)
        if self.rehearsal is not None:
            uploads = self.rehearsal.corrupt(server_round, state.model, uploads)
        for name, reason in self.plausibility.judge(state.model, uploads).items():
            dropped.append((name, BadReplyError("implausible", reason)))
            del replies_by_name[name], uploads[name]
        for name, error in dropped:
            self.conduct.note(name, error.kind, server_round)
            _log.warning("round %d: dropped a reply of %s: %s", server_round, name, error)
        self.plausibility.note(state.model, uploads)
        learned = {name: replies_by_name[name] for name in uploads}
        weights = [float(reply.num_examples) for reply in learned.values()] if self.weighted else None
        if weights is None or sum(weights) > 0:
            state.model = aggregate(state.model, list(uploads.values()), weights, self.aggregation)
        for name, reply in replies_by_name.items():
            self.conduct.forgive(name)
            # One that has lost its state is given the full model when it is next drawn.
            state.seen[name] = -1 if reply.status == LOST else server_round
        state.round_number = server_round
        state.conduct = self.conduct.to_mapping()
        state.scale = self.plausibility.to_mapping()
        state.history.append(
            describe_round(
                server_round,
                [(self._node(message.metadata.dst_node_id).name, message) for message in self._asked],
                replies_by_name,
                dict(dropped),
                state.layout.dtype.itemsize,
                time.monotonic() - self._round_started,
            )
        )
        if not learned:
            _log.warning("round %d: no valid reply, the model stays as it was", server_round)
            return None, average_metrics(learned)
        return state.layout.restore(state.model, state.kept), average_metrics(learned)

    def _uploads(self, server_round: int, replies: Mapping[str, Reply]) -> dict[str, tuple[Indices, Vector]]:
        """Return what each node has uploaded: the entries S_{k,n+1} and their values."""
        masks = self._masks()
        numbers = {node.name: node.number for node in self._nodes.values()}
        return {
            name: (masks.indices(server_round + 1, numbers[name]), reply.values)
            for name, reply in replies.items()
            if reply.status != LOST and reply.values is not None
        }

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the round's participants to evaluate their own models, which costs no model transfer."""
        if not self.evaluate_every or server_round % self.evaluate_every:
            return []
        state = self._current()
        nodes = [self._node(message.metadata.dst_node_id) for message in self._asked]
        known = [node for node in nodes if state.seen.get(node.name, 0) > 0]
        return [
            Message(
                encode_instruction(self._instruction(node, server_round, EVALUATE), config),
                dst_node_id=node.node_id,
                message_type=MessageType.EVALUATE,
                group_id=str(server_round),
            )
            for node in known
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the metrics of the clients' own evaluations, unweighted."""
        reports = []
        for message in replies:
            if message.has_content() and isinstance(record := message.content.get("metrics"), MetricRecord):
                reports.append(dict(record))
        return mean_of(reports) if reports else None

    # --- helpers ----------------------------------------------------------------------------------

    def _node(self, node_id: int) -> Node:
        return self._nodes.get(node_id) or Node(str(node_id), node_id, node_id)

    def _instruct(self, node: Node, round_number: int, config: ConfigRecord) -> Message:
        last = self._current().seen.get(node.name)
        kind = PART
        if last is None:
            kind = START if self.newcomers == "zeros" else FULL
        elif last < 0:
            kind = FULL
        if self.sync_every and round_number % self.sync_every == 0:
            kind = SYNC
        return Message(
            encode_instruction(self._instruction(node, round_number, kind), config),
            dst_node_id=node.node_id,
            message_type=MessageType.TRAIN,
            group_id=str(round_number),
        )

    def _instruction(self, node: Node, round_number: int, kind: str) -> Instruction:
        state = self._current()
        values = None
        if kind in (FULL, SYNC):
            values = state.model
        elif kind != EVALUATE:
            values = state.model[self._masks().indices(round_number, node.number)]
        return Instruction(
            session=state.session,
            round_number=round_number,
            epoch=state.epoch,
            node=node.number,
            kind=kind,
            expected=max(0, state.seen.get(node.name, 0)),
            masks=self._derived(),
            digest=state.layout.digest,
            layout=state.layout if kind in (START, FULL, SYNC) else None,
            values=values,
        )

    def _wait_for_nodes(self, grid: Grid, round_number: int) -> list[Node]:
        """Return the nodes to draw from: those that rest only if there are no others."""
        wanted = 1 if self._begun else self.min_nodes
        deadline = time.monotonic() + self.wait_for_nodes
        while True:
            online = nodes_of(grid)
            there = [node for node in online if node.name not in self.conduct.benched]
            # A benched node counts as there: a resumed run need not wait for those who may not play anyway.
            if (there and len(online) >= wanted) or time.monotonic() >= deadline:
                break
            time.sleep(0.1)
        self._nodes |= {node.node_id: node for node in there}
        if not there:
            benched = len(self.conduct.benched)
            raise PsofedError(f"no node to work with after {self.wait_for_nodes:g} s ({benched} benched)")
        if len(online) < wanted:
            _log.warning("round %d: only %d of %d nodes, going on", round_number, len(online), wanted)
        self._begun = True
        return [node for node in there if self.conduct.may_play(node.name, round_number)] or there

    def _settings(self) -> dict[str, Any]:
        return {
            "num_shared": self.num_shared,
            "pattern": self.pattern,
            "coordinated": self.coordinated,
            "seed": self.seed,
            "derivation": DERIVATION,
            "newcomers": self.newcomers,
            "weighted": self.weighted,
            "aggregation": repr(self.aggregation),
            "sync_every": self.sync_every,
        }

    def _current(self) -> ServerState:
        if self.state is None:
            raise PsofedError("the strategy has not been started")
        return self.state

    def _num_shared(self) -> int:
        return resolve_num_shared(self.num_shared, self._current().layout.dimension)

    def _derived(self) -> DerivedMasks:
        return DerivedMasks(
            seed=self.seed,
            dimension=self._current().layout.dimension,
            num_shared=self._num_shared(),
            pattern=self.pattern,
            coordinated=self.coordinated,
        )

    def _masks(self) -> MaskSource:
        return self._supplied_masks or self._derived()


def _patterns(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(pattern, str) for pattern in given):
        raise InvalidValueError(name, given, "a sequence of patterns, as ('encoder.*',)")
    return tuple(given)
