"""PSO-Fed as a Flower strategy: the loop over rounds, and what it is told.

The server's step is in :mod:`psofed.federation.server.step`, what participants are sent in
:mod:`psofed.federation.server.instructions`, how a run begins in :mod:`psofed.federation.server.sessions`.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.logs import OncePerChange
from psofed.common.scheduler import scheduler
from psofed.common.validation import check_boolean, check_integer, check_number
from psofed.federation.protocol.answers import DESCRIBED, EVALUATED, LEARNED, LEFT, LOST, Reply
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.models import arrays_of
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.protocol.wire import BadReplyError
from psofed.federation.server.adoption import ADOPT, Descriptions, adopt_columns
from psofed.federation.server.attendance import Attendance
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.checks import Conduct
from psofed.federation.server.clients import Client, ClientRegistry, anybody, dominance
from psofed.federation.server.exchange import MessageExchange, NodeAnswers
from psofed.federation.server.history import RECENT_ROUNDS
from psofed.federation.server.instructions import Instructor, NodeQuestion
from psofed.federation.server.lateness import LateReplies, LateReply
from psofed.federation.server.participants import DerivedParticipants, ParticipantSource
from psofed.federation.server.plausibility import Plausibility, Upload
from psofed.federation.server.rehearsal import Rehearsal
from psofed.federation.server.replies import Expectation, SortedReplies, sort_replies
from psofed.federation.server.rounds import (
    RoundRecord,
    average_metrics,
    dropped_lines,
    finite_metrics,
    mean_of,
)
from psofed.federation.server.sessions import new_session, resumed_session, session_settings
from psofed.federation.server.step import Combination, ServerStep
from psofed.federation.server.suspects import Suspects
from psofed.parts.base import Aggregation, Attack, Defence
from psofed.render.numbers import listed
from psofed.scenario.accepted import as_part

_log = logging.getLogger("psofed.federation")

_ASK_GRID_EVERY = 2.0  # seconds, between two rounds
_NOBODY, _GATEWAYS = "", " gateways"  # subjects of messages about no node
_BESIDES = 4096  # bytes for each client of a gateway besides its values: name, metrics, remark


class PSOFed(Strategy):
    """Partial sharing of any model's parameters, resilient to model poisoning.

    In round n each participant k gets the server's entries S_{k,n}, learns, and sends back its entries
    S_{k,n+1}; the server averages, over participants, the uploaded entry or its own where none was
    uploaded. Clients must run with :func:`psofed.federation.partial_sharing`.

    Parameters
    ----------
    num_shared : int or float, or Sharing
        M: a count, or a fraction of the model as a float in (0, 1]. A :class:`Sharing` also says which entries:
        ``Sharing(0.1, coordinated=False, include=("encoder.*",))``.
    num_participants : int, optional
        |S_n|; all clients that are online if None. A :class:`ParticipantSource` draws them otherwise.
    aggregation : Aggregation, its name, or Combination, optional
        How uploads are combined, on the entries that each participant shared: ``psofed.aggregations.Median()``, or a
        custom rule. By default :data:`ROBUST`, which one Byzantine node cannot lead away; ``"mean"`` is the paper's. A
        :class:`Combination` adds a step before the rule, or weights.
    defence : Defence, or its name, optional
        Watch what each node uploads, and exclude suspects: ``psofed.defences.Cusum(threshold=15.0)``, or
        :func:`psofed.federation.plan_defence` for a threshold that follows from a rate of false alarms. Excluded nodes
        are in ``strategy.state.suspects``, in status and result. See docs/defence.md.
    rehearsal : Attack, optional
        Try an attack on your own federation: the uploads of the Byzantine nodes are corrupted here, after they have
        arrived and before they are judged, by an attacker who sees whatever the attack says it knows. The nodes are
        those that ``attack.clients`` names, or the first `num_byzantine` by name. (A node can also lie by itself:
        :func:`psofed.federation.rehearse`.)
    rounds : RoundPlan, optional
        When rounds begin, what newcomers start from, and how often models are sent in full or evaluated:
        ``RoundPlan(min_nodes=3, interval=60)``.
    limits : ReplyLimits
        Bounds on replies, and when a node is benched.
    seed : int
        Seed of masks and participants.
    checkpoint : path or CheckpointStore, optional
        Where to keep the state after each round. If an earlier run has left its rounds there, `resume` continues it;
        only ``CheckpointStore(path, replaces=True)`` replaces it.
    resume : bool
        Continue from `checkpoint`; :meth:`start` then counts its `num_rounds` from the very first round.
    columns : ColumnNames, or "adopt", optional
        Names of the columns that clients learn from: ``ColumnNames(("wind", "pressure"), "output")``. They are the
        run's: clients that find their columns by name reorder them, all others are refused unless they declare the
        same ones (:func:`psofed.federation.partial_sharing`). ``"adopt"`` asks the nodes before the first round and
        takes what most of them say. None: columns have no names.
    is_gateway : callable, optional
        Whether a node, by name, may have more than one client; by default every node may have `limits.max_clients`.
    on_round : callable, optional
        Called with the :class:`ServerState` after each completed round.

    Examples
    --------
    >>> strategy = PSOFed(num_shared=0.1, num_participants=5, seed=1)
    >>> strategy.sharing.pattern
    'random'

    In a ServerApp: ``strategy.start(grid=grid, initial_arrays=model.state_dict(), num_rounds=100)``.
    """

    def __init__(
        self,
        num_shared: float | Sharing = 0.1,
        *,
        num_participants: int | ParticipantSource | None = None,
        aggregation: Aggregation | str | Combination | None = None,
        defence: Defence | str | None = None,
        rehearsal: Attack | None = None,
        rounds: RoundPlan | None = None,
        limits: ReplyLimits | None = None,
        seed: int = 0,
        checkpoint: str | Path | CheckpointStore | None = None,
        resume: bool = False,
        columns: ColumnNames | str | None = None,
        is_gateway: Callable[[str], bool] = anybody,
        on_round: Callable[[ServerState], None] | None = None,
    ) -> None:
        sharing = num_shared if isinstance(num_shared, Sharing) else Sharing(num_shared)
        self.sharing: Sharing = replace(sharing, seed=seed)
        self.rounds: RoundPlan = rounds or RoundPlan()
        self.instructor: Instructor = Instructor(self.sharing, self.rounds)
        self._participants: ParticipantSource = DerivedParticipants(seed)
        if isinstance(num_participants, ParticipantSource):
            self._participants, num_participants = num_participants, None
        self.num_participants: int | None = (
            None if num_participants is None else check_integer("num_participants", num_participants, 1)
        )
        self.limits: ReplyLimits = limits or ReplyLimits()
        self.conduct: Conduct = Conduct(self.limits)
        self.registry: ClientRegistry = ClientRegistry(self.limits.max_clients, is_gateway=is_gateway)
        watching: Defence | None = None if defence is None else as_part("defence", defence)
        if watching is not None and watching.kind == "none":
            watching = None
        combined = aggregation if isinstance(aggregation, Combination) else Combination(aggregation)
        self.step: ServerStep = ServerStep(
            combined,
            plausibility=self._plausibility(),
            rehearsal=None if rehearsal is None else Rehearsal(as_part("attack", rehearsal), seed),
            suspects=None if watching is None else Suspects(watching),
            seed=seed,
        )
        if self.num_participants is not None:
            pre = self.step.pre
            after = self.num_participants if pre is None else pre.uploads_after(self.num_participants)
            self.step.rule.check_participants(after)
        if isinstance(checkpoint, str | Path):
            checkpoint = CheckpointStore(Path(checkpoint))
        self.checkpoints: CheckpointStore | None = checkpoint
        self.resume: bool = check_boolean("resume", resume)
        if resume and checkpoint is None:
            raise InvalidValueError("resume", True, "true together with a checkpoint")
        if not (columns is None or columns == ADOPT or isinstance(columns, ColumnNames)):
            raise InvalidValueError("columns", columns, 'ColumnNames, "adopt" or None')
        self.columns = columns
        self.on_round = on_round
        self.state: ServerState | None = None
        self._exchange = MessageExchange()
        self._asked: list[NodeQuestion] = []
        self._evaluating: list[NodeQuestion] = []
        self._attendance: Attendance = Attendance(self.rounds)
        self._unreadable: set[str] = set()
        self._late: LateReplies = LateReplies(self.limits.late_weight)
        self._late_messages: list[Message] = []
        self._is_news = OncePerChange()
        self._met_gateways = False
        self._round_started = scheduler().monotonic()

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

        With ``num_rounds=0`` it runs until the grid ends the run, and waits for nodes however long it takes. The result
        has the metrics of the latest 1,000 rounds.

        It differs from Flower's own strategies in three ways: a round ends at its deadline even if replies are missing,
        and sooner if only slow nodes are (:mod:`psofed.federation.server.patience`), unreadable replies harm nobody,
        and a run can be resumed. `initial_arrays` may be anything that :func:`psofed.federation.arrays_of` takes.
        """
        check_integer("num_rounds", num_rounds, 0)
        self._attendance.is_endless = num_rounds == 0
        check_number("timeout", timeout, 0, open_low=True)
        state = self._begin(arrays_of(initial_arrays))
        self._say_size()
        self.summary()
        if self.columns == ADOPT and state.round_number == 0:
            columns = adopt_columns(
                lambda: self._ask_for_columns(grid, timeout),
                state.layout.dimension,
                self.rounds.wait_for_nodes,
            )
            state.layout = replace(state.layout, columns=columns)
        result = Result()
        arrays = state.layout.restore(state.model, state.kept)
        if evaluate_fn and state.round_number == 0 and (found := evaluate_fn(0, arrays)) is not None:
            result.evaluate_metrics_serverapp[0] = found
        done = state.round_number
        for round_number in range(done + 1, num_rounds + 1) if num_rounds else itertools.count(done + 1):
            if round_number > done + 1:
                self._wait_for_its_time(grid)
            for _ in range(2):  # once more if nodes turned out to be gateways, whose clients are drawn then
                answers = self._ask(
                    grid,
                    self.configure_train(round_number, arrays, train_config or ConfigRecord(), grid),
                    timeout,
                )
                averaged, metrics = self.aggregate_train(round_number, answers)
                if not self._met_gateways:
                    break
            arrays = arrays if averaged is None else averaged
            result.train_metrics_clientapp[round_number] = metrics or MetricRecord()
            questions = list(
                self.configure_evaluate(round_number, arrays, evaluate_config or ConfigRecord(), grid)
            )
            if questions and (
                own := self.aggregate_evaluate(round_number, self._send(grid, questions, timeout).replies)
            ):
                result.evaluate_metrics_clientapp[round_number] = own
                state.history[-1]["client_evaluation"] = finite_metrics(own)
            if evaluate_fn and (found := evaluate_fn(round_number, arrays)) is not None:
                result.evaluate_metrics_serverapp[round_number] = found
                state.history[-1]["evaluation"] = finite_metrics(found)
            for kept in (
                result.train_metrics_clientapp,
                result.evaluate_metrics_clientapp,
                result.evaluate_metrics_serverapp,
            ):
                kept.pop(round_number - RECENT_ROUNDS, None)
            self._complete()
        result.arrays = arrays
        return result

    def _wait_for_its_time(self, grid: Grid) -> None:
        """Wait until a round may begin. Meanwhile the grid is asked for its nodes: it says if the run is stopped."""
        while (pause := self._round_started + self.rounds.interval - scheduler().monotonic()) > 0.0:
            scheduler().sleep(min(pause, _ASK_GRID_EVERY))
            grid.get_node_ids()

    def _ask(self, grid: Grid, messages: Iterable[Message], timeout: float) -> list[Message]:
        answers = self._send(grid, list(messages), timeout, self._late.waiting())
        self._unreadable, self._late_messages = answers.unreadable, answers.late
        return answers.replies

    def _send(
        self, grid: Grid, messages: Sequence[Message], timeout: float, late: Mapping[str, int] | None = None
    ) -> NodeAnswers:
        return self._exchange(grid, messages, timeout, self._attendance.nodes, self.conduct.patience, late)

    def _begin(self, initial: ArrayRecord) -> ServerState:
        layout = self._layout(initial)
        if not self.resume or self.checkpoints is None:
            return self._begin_session(initial, layout)
        state = self.state = resumed_session(self.checkpoints, layout, self._settings())
        self.conduct = Conduct.from_mapping(state.conduct, self.limits)
        self.registry = ClientRegistry.from_mapping(
            state.clients, self.limits.max_clients, self.registry.is_gateway
        )
        self.step.plausibility = self._plausibility(state.scale)
        if (suspects := self.step.suspects) is not None:
            self.step.suspects = Suspects(suspects.defence, state.suspects)
        _log.info("resumed after round %d", state.round_number)
        return state

    def _layout(self, initial: ArrayRecord) -> ModelLayout:
        layout = ModelLayout.of(initial, self.sharing.include, self.sharing.exclude)
        return replace(layout, columns=self.columns) if isinstance(self.columns, ColumnNames) else layout

    def _ask_for_columns(self, grid: Grid, timeout: float) -> Descriptions:
        """Ask every node for the names of its columns, and of its clients."""
        state = self._current()
        self._attendance.take(grid, 1, self.registry, self.conduct)
        asked = [self.instructor.describe(state, node, self.registry) for node in self._attendance.online]
        answers = self._send(grid, [question.message for question in asked], timeout)
        found = sort_replies(answers.replies, asked, answers.unreadable, self._expectation(1))
        self._note_rosters(found)
        columns = {node.name: answer.columns for node, answer in found.nodes}
        return Descriptions(
            {name: (columns[name], reply.remark) for name, reply in found.valid.items()},
            dict(found.bad),
        )

    def _begin_session(self, initial: ArrayRecord, layout: ModelLayout) -> ServerState:
        self.sharing.derived(layout.dimension)  # refuses an M beyond D
        if self.checkpoints is not None:
            self.checkpoints.check_replaceable()
        self.state = new_session(initial, layout, self._settings())
        return self.state

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
        if (state := self.state) is None:
            # Run by another loop than ours.
            state = self._begin_session(arrays, self._layout(arrays))
        state.model = state.layout.flatten(arrays)
        available = self._attendance.take(grid, server_round, self.registry, self.conduct)
        clients = {client.number: client for client in available}
        drawn = self._participants.draw(server_round, list(clients), self.num_participants or len(clients))
        self._round_started = scheduler().monotonic()
        participants = [clients[number] for number in drawn]
        self._asked = self.instructor.ask(state, participants, self.registry, server_round, config)
        return [question.message for question in self._asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Join the valid replies; without any the model stays as it was."""
        state = self._current()
        replies, unreadable = list(replies), self._unreadable
        found = sort_replies(replies, self._asked, unreadable, self._expectation(server_round))
        self._unreadable = set()
        answered = unreadable | {reply.metadata.reply_to_message_id for reply in replies}
        valid, dropped = found.valid, found.bad
        is_news = self._note_rosters(found)
        # The clients of gateways that were not known as such are drawn at once, unless somebody has learned already.
        learned_nothing = all(reply.status in (DESCRIBED, LEFT) for reply in valid.values())
        self._met_gateways = is_news and bool(valid) and learned_nothing and not self._met_gateways
        if self._met_gateways:
            return None, None
        uploads, late = self._uploads(server_round, valid), self._sort_late(server_round, found, answered)
        masks = self.sharing.masks(state.layout.dimension)
        uploads |= {name: reply.upload(state.model, masks) for name, reply in late.items()}
        valid |= {name: about.reply for name, about in late.items()}
        examples = {name: reply.num_examples for name, reply in valid.items()}
        outcome = self.step.take(server_round, state.model, uploads, examples)
        state.model = outcome.model
        for name, (kind, reason) in outcome.refused.items():
            dropped.append((name, BadReplyError(kind, reason)))
            del valid[name]
        benched = self.conduct.benched
        for name, error in dropped:
            self.conduct.note(name, error.kind, server_round)
        for line in dropped_lines(pair for pair in dropped if self._is_news(pair[0], str(pair[1]))):
            _log.warning("round %d: %s", server_round, line)
        if new := sorted(self.conduct.benched - benched):
            count = self.limits.bench_after
            _log.warning(
                "round %d: no longer asked after %d bad replies: %s", server_round, count, listed(new)
            )
        elapsed = {name: server_round - max(0, state.seen.get(name, 0)) for name in valid}
        for name, reply in valid.items():
            self.conduct.forgive(name)
            self._is_news(name, "")
            if reply.status in (LEARNED, LOST):
                # One that has lost its state is given the full model when it is next drawn.
                answers = late[name].round_number if name in late else server_round
                state.seen[name] = -1 if reply.status == LOST else max(answers, state.seen.get(name, 0))
        state.round_number = server_round
        state.conduct = self.conduct.to_mapping()
        state.clients = self.registry.to_mapping()
        state.scale = self.step.plausibility.to_mapping()
        if self.step.suspects is not None:
            before = {name for name, about in state.suspects.get("nodes", {}).items() if about["out"]}
            state.suspects = self.step.suspects.to_mapping()
            for name in outcome.suspects.keys() - before:
                _log.warning("round %d: %s is suspect and left out", server_round, name)
        record = RoundRecord(
            round_number=server_round,
            asked=self._asked,
            valid=valid,
            dropped=dict(dropped),
            bytes_per_value=state.layout.dtype.itemsize,
            seconds=scheduler().monotonic() - self._round_started,
            suspects=None if self.step.suspects is None else outcome.suspects,
            late={name: server_round - about.round_number for name, about in late.items() if name in valid},
            elapsed=elapsed,
        )
        state.add_round(record.to_mapping())
        learned = {name: valid[name] for name in outcome.used}
        nothing = "" if learned else "no valid reply, the model stays as it was"
        if self._is_news(_NOBODY, nothing) and nothing:
            _log.warning("round %d: %s", server_round, nothing)
        if not learned:
            return None, average_metrics(learned)
        return state.layout.restore(state.model, state.kept), average_metrics(learned)

    def _sort_late(self, server_round: int, found: SortedReplies, answered: set[str]) -> dict[str, LateReply]:
        """Return the late replies that count in this round, and keep waiting for those that are missing now."""
        late, bad = self._late.sort(server_round, self._late_messages, self._expectation, found.valid)
        self._late_messages = []
        late = {name: reply for name, reply in late.items() if name not in self.conduct.benched}
        found.bad.extend(bad)
        for name in late:
            self.conduct.late[name] = self.conduct.late.get(name, 0) + 1
        self._late.remember(server_round, self._asked, answered)
        return late

    def _uploads(self, server_round: int, replies: Mapping[str, Reply]) -> dict[str, Upload]:
        """Return what each client has uploaded: the entries S_{k,n+1} and their values."""
        masks = self.sharing.masks(self._current().layout.dimension)
        numbers = {client.name: client.number for client in self._participating()}
        return {
            name: (masks.indices(server_round + 1, numbers[name]), reply.values)
            for name, reply in replies.items()
            if reply.values is not None
        }

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the round's participants to evaluate their own models, which costs no model transfer."""
        every = self.rounds.evaluate_every
        if not every or server_round % every:
            return []
        state = self._current()
        clients = [client for client in self._participating() if state.seen.get(client.name, 0) > 0]
        self._evaluating = self.instructor.ask(
            state, clients, self.registry, server_round, config, evaluate=True
        )
        return [question.message for question in self._evaluating]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the metrics of the clients' own evaluations, unweighted."""
        found = sort_replies(replies, self._evaluating, (), self._expectation(server_round))
        for line in dropped_lines((pair for pair in found.bad if pair[1].kind != "no-reply"), "evaluation"):
            _log.warning("round %d: %s", server_round, line)
        reports = [reply.metrics for reply in found.valid.values() if reply.status == EVALUATED]
        return mean_of(reports) if reports else None

    # --- helpers ----------------------------------------------------------------------------------

    def _participating(self) -> list[Client]:
        return [client for question in self._asked for client in question.clients.values()]

    def _expectation(self, round_number: int) -> Expectation:
        state = self._current()
        num_shared = self.sharing.derived(state.layout.dimension).num_shared
        return Expectation(state.session, round_number, num_shared, state.layout, self.limits)

    def _note_rosters(self, found: SortedReplies) -> bool:
        """Register the clients that gateways have named, and return whether any roster changed."""
        rosters = [(node, answer.roster) for node, answer in found.nodes if answer.roster is not None]
        changed = [self.registry.note(node, roster) for node, roster in rosters]
        if any(changed):
            self._say_size()
            warning = dominance(self.registry.rosters, self.registry.nodes)
            if self._is_news(_GATEWAYS, warning) and warning:
                _log.warning("%s", warning)
        return any(changed)

    def _say_size(self) -> None:
        """Say how large messages may become: a model, or what all clients of a gateway upload."""
        state = self._current()
        num_shared = self.sharing.derived(state.layout.dimension).num_shared
        most = max(map(len, self.registry.rosters.values()), default=0)
        uploads = most * (num_shared * state.layout.dtype.itemsize + _BESIDES)
        self._exchange.say_size(max(state.model.nbytes, uploads))

    def _plausibility(self, state: Mapping[str, Any] | None = None) -> Plausibility:
        return Plausibility(self.limits.max_deviation or None, self.limits.max_drift or None, state)

    def _settings(self) -> dict[str, Any]:
        return session_settings(self.sharing, self.rounds, self.step)

    def _current(self) -> ServerState:
        if self.state is None:
            raise PsofedError("the strategy has not been started")
        return self.state
