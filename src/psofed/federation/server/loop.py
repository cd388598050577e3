"""The server's loop over rounds.

The step is in :mod:`psofed.federation.server.step`, what participants are sent in
:mod:`psofed.federation.server.exchange`, how replies are collected in
:mod:`psofed.federation.server.exchange`.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.logs import OncePerChange, log
from psofed.common.scheduler import scheduler
from psofed.common.validation import check_boolean, check_integer, check_number
from psofed.federation.protocol import messages
from psofed.federation.protocol.layout import Arrays, ColumnNames, ModelLayout
from psofed.federation.protocol.masks import DERIVATION, Sharing
from psofed.federation.protocol.messages import BadReplyError, ClientTask, Reply
from psofed.federation.protocol.names import MAX_CLIENTS
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.checks import dropped_lines, finite_metrics, round_entry, sort_replies
from psofed.federation.server.clients import Attendance, Client, ClientRegistry, Strikes
from psofed.federation.server.exchange import NodeQuestion, draw_participants, exchange
from psofed.federation.server.step import Combination, ServerStep, Suspects
from psofed.federation.transport.hub import Hub
from psofed.parts.base import Aggregation, Defence
from psofed.render.numbers import listed
from psofed.scenario.accepted import as_part

_ATTEND_EVERY = 0.5  # seconds
_TRY_DISK_EVERY = 5.0
_PUBLISHED = 10_000  # entries of a model, up to which it is published as JSON
_NOBODY, _DISK = "", " disk"  # subjects of messages about no node


class RunStoppedError(PsofedError):
    """Raised within a run that `attend` has stopped."""


class Server:
    """PSO-Fed's server: partial sharing of any model's parameters, resilient to model poisoning.

    In round n each participant k gets the server's entries S_{k,n}, learns, and sends back its entries
    S_{k,n+1}; the server averages, over participants, the uploaded entry or its own where none was uploaded.

    Parameters
    ----------
    num_shared : int or float, or Sharing
        M: a count, or a fraction of the model as a float in (0, 1]. A :class:`Sharing` also says which entries:
        ``Sharing(0.1, coordinated=False, include=("encoder.*",))``.
    num_participants : int, optional
        |S_n|; all clients that are online if None.
    aggregation : Aggregation, its name, or Combination, optional
        How uploads are combined, on the entries that each participant shared: ``psofed.aggregations.Median()``, or a
        custom rule. By default :data:`~psofed.federation.server.step.ROBUST`; ``"mean"`` is the paper's. A
        :class:`Combination` adds a step before the rule.
    defence : Defence, or its name, optional
        Watch what each node uploads, and exclude suspects: ``psofed.defences.Cusum(threshold=15.0)``, or
        :func:`~psofed.federation.server.step.plan_defence` for a threshold that follows from a rate of false
        alarms. Excluded nodes are in ``server.state.suspects``.
    rounds : RoundPlan, optional
        When rounds begin, what newcomers start from, and how often models are sent in full.
    limits : ReplyLimits, optional
        Bounds on replies, and when a client is banned.
    seed : int
        Seed of masks and participants.
    checkpoint : path or CheckpointStore, optional
        Where to keep the state after each round. If an earlier run has left its rounds there, `resume` continues it;
        only ``CheckpointStore(path, replaces=True)`` replaces it.
    resume : bool
        Continue from `checkpoint`; :meth:`run` then counts its `num_rounds` from the very first round.
    columns : ColumnNames, optional
        Names of the columns that clients learn from: ``ColumnNames(("wind", "pressure"), "output")``. Clients that find
        their columns by name reorder them, all others are refused. None: columns have no names.
    clients_allowed : callable, optional
        How many clients a node, by name, may have; by default `limits.max_clients`, which is also the most.
    settings : mapping
        For the run description: what nodes must know of the run.
    on_round : callable, optional
        Called with the :class:`ServerState` after each completed round.
    attend : callable, optional
        Called at least once a second, also while the server waits; returns True to stop the run.

    Attributes
    ----------
    state : ServerState or None
        After the last completed round.
    was_stopped : bool
        Whether `attend` has stopped the run.
    """

    def __init__(
        self,
        num_shared: float | Sharing = 0.1,
        *,
        num_participants: int | None = None,
        aggregation: Aggregation | str | Combination | None = None,
        defence: Defence | str | None = None,
        rounds: RoundPlan | None = None,
        limits: ReplyLimits | None = None,
        seed: int = 0,
        checkpoint: str | Path | CheckpointStore | None = None,
        resume: bool = False,
        columns: ColumnNames | None = None,
        clients_allowed: Callable[[str], int] = lambda _: MAX_CLIENTS,
        settings: Mapping[str, Any] | None = None,
        on_round: Callable[[ServerState], None] | None = None,
        attend: Callable[[], bool] | None = None,
    ) -> None:
        sharing = num_shared if isinstance(num_shared, Sharing) else Sharing(num_shared)
        self.sharing: Sharing = replace(sharing, seed=seed)
        self.rounds: RoundPlan = rounds or RoundPlan()
        if num_participants is not None:
            check_integer("num_participants", num_participants, 1)
        self.num_participants: int | None = num_participants
        self.limits: ReplyLimits = limits or ReplyLimits()
        self.strikes: Strikes = Strikes(self.limits)
        self._allowed = lambda node: min(self.limits.max_clients, clients_allowed(node))
        self.registry: ClientRegistry = ClientRegistry(self._allowed)
        watching: Defence | None = None if defence is None else as_part("defence", defence)
        if watching is not None and watching.kind == "none":
            watching = None
        combined = aggregation if isinstance(aggregation, Combination) else Combination(aggregation)
        self.step: ServerStep = ServerStep(
            combined, suspects=None if watching is None else Suspects(watching), seed=seed
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
        if not (columns is None or isinstance(columns, ColumnNames)):
            raise InvalidValueError("columns", columns, "ColumnNames or None")
        self.columns = columns
        self.settings: Mapping[str, Any] = settings or {}
        self.on_round = on_round
        self.state: ServerState | None = None
        self.was_stopped: bool = False
        self._asked_to_stop = attend or (lambda: False)
        self._attendance = Attendance(self.rounds, self._attend)
        self._is_news = OncePerChange()
        self._config: Mapping[str, Any] = {}
        self._sequences = itertools.count(int(scheduler().new_id()[:13], 16))  # differ for every instruction
        self._started = self._attended = -math.inf  # when the last round began, and when `attend` was called

    def run(
        self,
        hub: Hub,
        initial: Arrays,
        num_rounds: int,
        deadline: float = 60.0,
        *,
        config: Mapping[str, str | int | float | bool] | None = None,
        evaluate: Callable[[int, Arrays], Mapping[str, Any] | None] | None = None,
    ) -> ServerState:
        """Run the rounds up to `num_rounds`, each for at most `deadline` seconds, and return the state after the last.

        With ``num_rounds=0`` it runs until it is stopped, and waits for nodes however long it takes. A round ends at
        its deadline even if replies are missing, and sooner if only slow nodes are
        (:mod:`psofed.federation.server.exchange`). If the checkpoint cannot be written, say because the disk is
        full, the run pauses and continues by itself.

        Parameters
        ----------
        initial : mapping of str to array
            The model, by the names of its arrays.
        config : mapping, optional
            Passed on to the clients' training.
        evaluate : callable, optional
            Given the round and the model, returns metrics for the history.
        """
        check_integer("num_rounds", num_rounds, 0)
        check_number("deadline", deadline, 0, open_low=True)
        self._attendance.is_endless = num_rounds == 0
        state = self._begin(initial)
        hub.publish(run=messages.RunDescription(state.session, self.settings).to_bytes())
        log.info("PSO-Fed: %s", ", ".join(f"{name} {value}" for name, value in self._fixed().items()))
        self._config = config or {}
        first = state.round_number + 1
        try:
            for n in range(first, num_rounds + 1) if num_rounds else itertools.count(first):
                self._sleep(self._started + self.rounds.interval - scheduler().monotonic())
                self._round(state, hub, n, deadline)
                metrics = evaluate(n, state.layout.restore(state.model, state.kept)) if evaluate else None
                if metrics is not None:
                    state.history[-1]["evaluation"] = finite_metrics(metrics)
                self._complete(state, hub)
        except RunStoppedError:
            self.was_stopped = True
        return state

    # --- beginning and end ------------------------------------------------------------------------

    def _begin(self, initial: Arrays) -> ServerState:
        layout = ModelLayout.of(initial, self.sharing.include, self.sharing.exclude)
        layout = replace(layout, columns=self.columns)
        self.sharing.derived(layout.dimension)  # refuses an M beyond D
        if not self.resume or self.checkpoints is None:
            if self.checkpoints is not None:
                self.checkpoints.check_replaceable()
            self.state = ServerState.begin(initial, layout, self._fixed())
            return self.state
        state = self.state = self.checkpoints.resume(layout, self._fixed())
        self.strikes = Strikes(self.limits, **state.strikes)
        self.registry = ClientRegistry(self._allowed, **state.clients)
        self.step.memory = state.memory
        if (suspects := self.step.suspects) is not None:
            self.step.suspects = Suspects(suspects.defence, state.suspects)
        log.info("resumed after round %d", state.round_number)
        return state

    def _complete(self, state: ServerState, hub: Hub) -> None:
        """Keep the state and publish the model; a disk that is full is tried again."""
        while self.checkpoints is not None:
            try:
                self.checkpoints.save(state)
                break
            except PsofedError as error:
                if self._is_news(_DISK, str(error)):
                    log.warning("round %d: paused, trying again: %s", state.round_number, error)
                self._sleep(_TRY_DISK_EVERY)
        if self._is_news(_DISK, ""):
            log.warning("round %d: continuing", state.round_number)
        if self.on_round is not None:
            self.on_round(state)
        if state.layout.dimension <= _PUBLISHED:
            hub.publish(model=describe_model(state))

    def _fixed(self) -> dict[str, Any]:
        """Return the settings that must not change within a session, as JSON holds them."""
        sharing, step = self.sharing, self.step
        return {
            **{name: getattr(sharing, name) for name in ("num_shared", "pattern", "coordinated", "seed")},
            "derivation": DERIVATION,
            "newcomers": self.rounds.newcomers,
            "aggregation": repr(step.rule),
            "pre_aggregation": None if step.pre is None else repr(step.pre),
            "defence": None if step.suspects is None else repr(step.suspects.defence),
        }

    # --- one round --------------------------------------------------------------------------------

    def _round(self, state: ServerState, hub: Hub, n: int, deadline: float) -> None:
        """Draw the participants S_n, send each its entries S_{k,n}, and join what they send back."""
        clients = self._attendance.take(hub, state.session, n, self.registry, self.strikes)
        available = {client.number: client for client in clients}
        drawn = draw_participants(self.sharing.seed, n, available, self.num_participants or len(available))
        participants = [available[number] for number in drawn]
        self._started = scheduler().monotonic()
        questions = self._ask(state, n, participants)
        frames = exchange(hub, questions, deadline, self.limits, self._attend)
        self._join(state, n, questions, frames)

    def _ask(self, state: ServerState, n: int, participants: list[Client]) -> list[NodeQuestion]:
        """Return the questions that let participants learn, one to each node."""
        layout = state.layout
        masks = self.sharing.derived(layout.dimension)
        common = None if not masks.coordinated else state.model[masks.indices(n, 0)]
        clients: dict[str, dict[str, Client]] = {}  # by node and name there
        tasks: dict[str, dict[str, ClientTask]] = {}
        for client in participants:
            last = state.seen.get(client.name)  # −1: it has lost its state
            kind = messages.PART if last is not None and last >= 0 else messages.FULL
            if last is None and self.rounds.newcomers == "zeros":
                kind = messages.START
            values = state.model
            if kind != messages.FULL:
                values = state.model[masks.indices(n, client.number)] if common is None else common
            task = ClientTask(client.local, kind, max(0, last or 0), values)
            clients.setdefault(client.node, {})[client.local] = client
            tasks.setdefault(client.node, {})[client.local] = task
        questions = []
        for node, asked in tasks.items():
            is_known = all(task.kind == messages.PART for task in asked.values())
            instruction = messages.Instruction(
                state.session, n, node, masks, layout.digest, tuple(asked.values()), state.epoch, next(self._sequences),
                None if is_known else layout, tuple(self.registry.refused.get(node, ())), self._config,
            )  # fmt: skip
            frame = messages.encode_instruction(instruction)
            questions.append(NodeQuestion(node, instruction.sequence, frame, clients[node], asked))
        return questions

    def _join(self, state: ServerState, n: int, questions: list[NodeQuestion], frames: Mapping[int, bytes]) -> None:
        """Turn a round's replies into the next model; without a valid one the model stays as it was."""
        step = self.step
        masks = self.sharing.derived(state.layout.dimension)
        valid, bad = sort_replies(questions, frames, state, n, masks.num_shared, self.limits)
        numbers = {client.name: client.number for q in questions for client in q.clients.values()}
        uploads = {
            name: (masks.indices(n + 1, numbers[name]), reply.values)
            for name, reply in valid.items()
            if reply.values is not None
        }
        outcome = step.take(n, state.model, uploads)
        entry = round_entry(state, n, questions, valid, bad)
        entry["seconds"] = round(scheduler().monotonic() - self._started, 3)
        state.round_number, state.model, state.memory = n, outcome.model, step.memory
        self._note_bad(n, bad)
        self._note_valid(state, n, valid)
        state.strikes, state.clients = self.strikes.to_mapping(), self.registry.to_mapping()
        if step.suspects is not None:
            entry["left_out"] = sorted(outcome.suspects)
            before = {name for name, about in state.suspects.get("nodes", {}).items() if about["out"]}
            state.suspects = step.suspects.to_mapping()
            for name in outcome.suspects.keys() - before:
                log.warning("round %d: %s is suspect and left out", n, name)
        state.add_round(entry)
        nothing = "" if outcome.used else "no valid reply, the model stays as it was"
        if self._is_news(_NOBODY, nothing) and nothing:
            log.warning("round %d: %s", n, nothing)

    def _note_bad(self, n: int, bad: Mapping[str, BadReplyError]) -> None:
        banned = self.strikes.banned
        for name, error in bad.items():
            self.strikes.note(name, error.kind, n)
        for line in dropped_lines(pair for pair in bad.items() if self._is_news(pair[0], str(pair[1]))):
            log.warning("round %d: %s", n, line)
        if new := sorted(self.strikes.banned - banned):
            log.warning("round %d: banned after %d bad replies: %s", n, self.limits.ban_after, listed(new))

    def _note_valid(self, state: ServerState, n: int, valid: Mapping[str, Reply]) -> None:
        for name, reply in valid.items():
            self.strikes.forgive(name)
            self._is_news(name, "")
            if reply.status in (messages.LEARNED, messages.LOST):
                # One that has lost its state is given the full model when it is next drawn.
                state.seen[name] = -1 if reply.status == messages.LOST else max(n, state.seen.get(name, 0))

    # --- helpers ----------------------------------------------------------------------------------

    def _attend(self) -> None:
        """Ask whether to stop, but not for every reply."""
        if scheduler().monotonic() - self._attended >= _ATTEND_EVERY:
            self._attended = scheduler().monotonic()
            if self._asked_to_stop():
                raise RunStoppedError("the run was stopped")

    def _sleep(self, seconds: float) -> None:
        """Wait, and attend meanwhile."""
        until = scheduler().monotonic() + seconds
        while (pause := until - scheduler().monotonic()) > 0.0:
            self._attend()
            scheduler().sleep(min(pause, _ATTEND_EVERY))


def describe_model(state: ServerState) -> bytes:
    """Return the model as the retained JSON that other programs on the broker can read."""
    columns, arrays = state.layout.columns, state.layout.restore(state.model, state.kept)
    document = {
        "session": state.session,
        "round": state.round_number,
        "columns": None if columns is None else columns.to_mapping(),
        "model": {name: array.tolist() for name, array in arrays.items()},
    }
    return json.dumps(document).encode()
