"""A run of several trials: draws participants and masks chunk by chunk and calls the kernel."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine import iteration, links, rivals, server, step
from psofed.engine.attackers import AttackSide, draw_byzantine, make_attack_side
from psofed.engine.availability import Drawing, Participants
from psofed.engine.channels import make_channels
from psofed.engine.delays import Delays
from psofed.engine.drift import TargetMoves
from psofed.engine.hooks import Hook, watch_hooks
from psofed.engine.inputs import InputModel, make_input_model
from psofed.engine.iteration import DefenceSide, Exchanges, Stages, State, TrialBlock, advance
from psofed.engine.lanes import WIDTH, empty_lanes
from psofed.engine.learning import make_learning, make_sampling
from psofed.engine.masks import Masks
from psofed.engine.measuring import make_measurement
from psofed.engine.rivals import make_rival_side
from psofed.engine.samples import Chunk, FunctionSamples, TrialSamples
from psofed.engine.server import defence_hook, make_rule_side
from psofed.engine.step import SUM_BLOCK, Layout, Tally, make_source, make_step_scratch
from psofed.engine.streams import Stream, make_stream
from psofed.engine.tables import KernelTable, stage_address
from psofed.engine.test_set import NO_TESTS, draw_test_set
from psofed.parts.metric import Metric
from psofed.parts.watching import WatchPlan, make_watching

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.parts.watching import Watching
    from psofed.scenario import Scenario

# About how many bytes of participants and masks are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000

# About how many client updates are made at a time: whoever watches or stops a run waits for no more.
_CHUNK_UPDATES = 100_000_000

# Fewer clients than this are not worth waking a thread for.
_CLIENTS_PER_THREAD = 100_000

_NOT_WATCHED = WatchPlan(0.0, np.zeros((0, 0)))
_ALL_LEARN = np.zeros((0, 0), np.uint8)
_NOT_YET_DRAWN: Any = None


def is_plain(scenario: "Scenario") -> bool:
    """Tell whether clients make LMS steps on independent white samples of one fixed target."""
    data = scenario.data
    is_white = data.stream.is_independent and data.covariances is None and data.correlation == 0.0
    return (
        is_white
        and data.rows is None
        and data.target_spread == 0.0
        and scenario.is_linear
        and scenario.drift is None
        and scenario.learner.kind == "lms"
        and scenario.algorithm.holds_models
        and not any(attack.poisons_samples() for attack in scenario.attacks)
    )


class Run:
    """Several trials in lock step, or one trial with its lanes over clients.

    Parameters
    ----------
    scenario, fleet, seed
        What is simulated.
    trials : range
        Up to WIDTH trials.
    samples, plan
        Given samples, and what a defence needs to know.
    over_clients : bool
        Whether lanes are clients: for a single trial where :func:`is_plain`.
    threads : int
        Threads that share the clients of such a trial.
    metrics : sequence of Metric
        The user's own metrics.
    by_client : bool
        Whether each client's errors are measured: sums of their squares, and with Byzantine clients the honest MSE.

    Attributes
    ----------
    server : array (L, D)
        Errors w − w_n.
    chunk : int
        How many iterations :meth:`advance` should be asked for at a time.
    samples : TrialSamples or None
        The samples, where they are not drawn; may be replaced by others of the same shape between two calls.
    watched_from : int
        From which iteration on each client's squared errors are added up.
    """

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        seed: int,
        trials: range,
        samples: TrialSamples | None = None,
        plan: WatchPlan | None = None,
        over_clients: bool = False,
        threads: int = 1,
        metrics: Sequence[Metric] = (),
        by_client: bool = False,
    ) -> None:
        assert len(trials) <= (1 if over_clients else WIDTH)
        assert (plan is None) == (scenario.defence is None), "a defence needs its plan"
        self._scenario, algorithm, count = scenario, scenario.algorithm, len(trials)
        clients, dimension = scenario.num_clients, scenario.dimension
        participants = algorithm.most_participants(scenario)
        exchange = None if algorithm.holds_models else algorithm.exchange(scenario)
        numbers = scenario.num_shared if exchange is None else exchange.numbers
        down = scenario.num_shared if exchange is None else dimension
        most_numbers = numbers if exchange is None else max(numbers, dimension)  # decoded or not
        sends_models = exchange is None or exchange.sends_model
        self._layout = Layout(clients, 4, WIDTH - 1) if over_clients else Layout(clients, 0, 0)
        vectors = ((clients - 1) >> self._layout.shift) + 1
        data = make_stream(seed, "data", trials)
        if samples is None and not scenario.is_linear:
            samples = FunctionSamples(scenario, fleet, data)
        self.samples: TrialSamples | None = samples
        self._tests_on_next = samples is not None and samples.tests_on_next

        learning = make_learning(scenario, count)
        sampling = make_sampling(
            scenario, count, self._tests_on_next, samples is not None, fleet.target_offsets
        )
        inputs = make_input_model(fleet, draws=samples is None)
        if over_clients:
            inputs, stepsizes = _pad_inputs(inputs, learning.stepsizes, vectors)
            learning = learning._replace(stepsizes=stepsizes)
        self._moves = None
        if scenario.drift is not None:
            self._moves = TargetMoves(scenario.drift, dimension, make_stream(seed, "drift", trials))

        self._drawing = Drawing(scenario, seed, trials, self._layout, participants)
        self._masks = Masks(scenario, make_stream(seed, "masks", trials)) if algorithm.holds_models else None
        attack, attackers, attack_hooks = make_attack_side(
            scenario, fleet, seed, trials, (participants, numbers)
        )
        links = scenario.channel
        up, up_hooks = make_channels(
            () if links is None else links.up, "channel_up", seed, trials, (participants, numbers),
            dimension if exchange is None else numbers, clients,
        )  # fmt: skip
        below, down_hooks = make_channels(
            () if links is None else links.down,
            "channel_down",
            seed,
            trials,
            (participants, down),
            dimension,
            clients,
        )
        self._delays = Delays(
            scenario.delay, make_stream(seed, "delay", trials), clients, participants, numbers, dimension
        )
        # Root data are drawn as y = wᵀx + ν, and are of the model's entries: there are none for other samples.
        root = make_stream(seed, "root", trials) if sends_models and samples is None else None
        stream = make_stream(seed, "pre_aggregation", trials)
        rule, root_set = make_rule_side(scenario, fleet, stream, root, most_numbers)
        watching = make_watching(scenario.defence, plan or _NOT_WATCHED, clients, count if plan else 0)
        downloads = scenario.defence is None or scenario.defence.excluded_download
        rival = make_rival_side(scenario, seed, trials, participants)
        self._traffic = None if algorithm.holds_models else algorithm.traffic(scenario)
        tests = NO_TESTS
        if not self._tests_on_next:
            tests = draw_test_set(scenario, fleet, make_stream(seed, "test", trials))

        self._is_plain = is_plain(scenario) and samples is None
        state = State(
            target=fleet.target.copy(),
            base=fleet.target.copy() if sends_models else np.zeros(numbers),
            models=_filled(fleet.target[:, None], vectors if algorithm.holds_models else 1, dimension, WIDTH),
            server=np.repeat(fleet.target[None], count, axis=0),
            server_lanes=_filled(0.0, 1, dimension, WIDTH),
            sent=np.zeros((count, participants, numbers)),
            rows=np.full(count, participants),
            asked=np.full(count, participants),
            received=np.zeros((count, participants, down)),
            every=np.repeat(np.arange(down, dtype=np.int32)[None, None], count, axis=0),
            nothing=np.zeros((count, numbers)),
            path=_filled(0.0, count, dimension, WIDTH),
            measured=empty_lanes(2, WIDTH),
        )
        self.server: FloatArray = state.server
        self.watched_from = 0
        tally = Tally(
            sums=_filled(0.0, -(-vectors // (SUM_BLOCK >> self._layout.shift)), WIDTH),
            tests=empty_lanes(WIDTH),
            errors=_filled(0.0, vectors if metrics or (by_client and scenario.num_byzantine) else 0, WIDTH),
            squares=_filled(0.0, vectors if by_client or samples is not None else 0, WIDTH),
            watched_from=0,
        )
        self._block = TrialBlock(
            self._layout, make_source(data, self._layout, (dimension + 2) // 2), inputs, learning, sampling,
            _NOT_YET_DRAWN, attack, attackers, up, below, self._delays.side, self._delays.arrived,
            DefenceSide(defence_hook(scenario.defence), downloads), watching, rule, root_set, rival, tests,
            state, make_step_scratch(dimension, 0, vectors), tally,
        )  # fmt: skip
        self._table: KernelTable | None = None
        hooks = [hook for values in self._block if values for hook in values if isinstance(hook, Hook)]
        self._check = watch_hooks(self, (*hooks, *attack_hooks, *up_hooks, *down_hooks))
        threads = min(max(clients // _CLIENTS_PER_THREAD, 1), threads) if over_clients else 1
        self._metrics = [make_measurement(metric) for metric in metrics]
        self._target = fleet.target[None]
        self._threads = _Threads(threads, tally.sums.shape[0], vectors, self._layout, dimension)
        self.chunk: int = self._chunk_size(participants, numbers)

    def _chunk_size(self, participants: int, numbers: int) -> int:
        scenario, trials = self._scenario, len(self.server)
        exchanged = participants * (numbers + 1) * trials
        if scenario.availability is not None:
            exchanged += scenario.num_clients * WIDTH // 8
        redrawn = (attack for attack in scenario.attacks if attack.byzantine_set == "redrawn")
        exchanged += sum(attack.num_byzantine for attack in redrawn) * trials // 2
        most = int(np.clip(_CHUNK_UPDATES // (scenario.num_clients * trials), 1, 1024))
        size = int(np.clip(_CHUNK_BYTES // (8 * exchanged), 1, most))
        if self.samples is not None:
            size = int(np.clip(_CHUNK_BYTES // self.samples.bytes_per_iteration, 1, size))
        return size

    @property
    def clients(self) -> FloatArray:
        """Errors w − w_{k,n} of all trials, shape (K, D, L): a copy."""
        models, (clients, _, mask) = self._block.state.models, self._layout
        if mask:
            return np.ascontiguousarray(
                models.transpose(0, 2, 1).reshape(-1, models.shape[1])[:clients, :, None]
            )
        return models[:, :, : len(self.server)].copy()

    def set_models(self, clients: FloatArray, server: FloatArray) -> None:
        """Set the errors of all trials to ``clients`` (K, D) and ``server`` (D,); lanes are trials."""
        self._block.state.models[:] = clients[:, :, None]
        self.server[:] = server

    @property
    def client_squares(self) -> FloatArray:
        """Sums of each client's squared errors from iteration :attr:`watched_from` on, shape (K, L)."""
        squares = self._block.tally.squares
        if self._layout.mask:
            return squares.reshape(-1, 1)[: self._layout.clients].copy()
        return squares[:, : len(self.server)].copy()

    def forget_squares(self) -> None:
        """Set all sums of squared errors to zero."""
        self._block.tally.squares[:] = 0.0

    @property
    def upload_counts(self) -> IntArray:
        """How often each client has uploaded, shape (K, L); empty unless a channel is private."""
        return self._drawing.upload_counts

    @property
    def watching(self) -> "Watching | None":
        """Memory of the defence; None without one."""
        return None if self._scenario.defence is None else self._block.watching

    def advance(self, first: int, metrics: FloatArray) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, trial]``."""
        count, sampling = len(metrics), self._block.sampling
        given = None if self.samples is None else self.samples.chunk(first, count)
        if given is not None:
            sampling = sampling._replace(inputs=given.inputs, residuals=given.residuals)
        if self._moves is not None:
            moves = np.zeros((count, self._scenario.dimension, WIDTH))
            moves[:, :, : len(self.server)] = self._moves.draw(first, count)
            sampling = sampling._replace(moves=moves)
        exchanges, rival = np.full(count, self._block.state.sent.shape[1]), self._block.rival
        if self._traffic is not None:
            exchanges = np.array([self._traffic.exchanges_in(first + t) for t in range(count)], np.int64)
            rival = rival._replace(exchanges=exchanges)
        drawn = self._drawing.draw(first, count, exchanges)
        block = self._block._replace(
            sampling=sampling,
            exchange=self._draw_exchange(first, count, drawn),
            attack=self._draw_attack(first, count),
            delay=self._delays.draw(first, drawn.uploaders, drawn.asked),
            rival=rival,
            tally=self._block.tally._replace(watched_from=self.watched_from),
        )
        table: Any = KernelTable(block, self._table)
        self._table, call = table, (self._stages(block, table), table, metrics)
        if self._threads.count == 1 and not self._metrics:
            advance(iteration.WHOLE, first, 0, count, *call)
        else:
            parts = [(call[0], part, metrics) for part in self._threads.parts(table)]
            for t in range(count):
                advance(iteration.BEFORE, first, t, t + 1, *call)
                self._threads.run(
                    [partial(advance, iteration.LEARN, first, t, t + 1, *part) for part in parts]
                )
                self._measure(first + t, t, block, metrics)
                advance(iteration.AFTER, first, t, t + 1, *call)
        self._check()
        if given is not None:
            # The kernel divides by all clients; those without a sample do not count.
            share = self._scenario.num_clients / np.maximum(given.active, 1)
            metrics[:, 0] *= share[:, None]
            if self.has_honest:
                metrics[:, 3] *= self._honest_share(given, block.attack.sets)
            if self._tests_on_next:
                metrics[:, 2] *= share[:, None]

    @property
    def has_honest(self) -> bool:
        """Whether ``metrics[:, 3]`` is the MSE of the honest clients; the user's own metrics follow."""
        return bool(self._block.tally.errors.size and self._block.attackers.is_byzantine.size)

    def _honest_share(self, given: Chunk, sets: IndexArray) -> FloatArray:
        """Return the honest clients over those that have a sample, shape (T, L or 1)."""
        present = (given.inputs[..., 0] != 0.0).any(axis=2)
        if not sets.size:
            honest = ~self._block.attackers.is_byzantine.any(axis=0)
            counts = present[:, honest].sum(axis=1, keepdims=True)
            return np.asarray(int(honest.sum()) / np.maximum(counts, 1))
        byzantine = np.take_along_axis(present[:, None], sets.astype(np.int64), axis=2).sum(axis=2)
        counts = given.active[:, None] - byzantine
        return np.asarray((present.shape[1] - sets.shape[2]) / np.maximum(counts, 1))

    def _measure(self, n: int, t: int, block: TrialBlock, metrics: FloatArray) -> None:
        """Write the user's own metrics of iteration n, which all clients have just learned in."""
        if not self._metrics:
            return
        trials, clients, errors = len(self.server), self._layout.clients, block.tally.errors
        attackers, moves = block.attackers.is_byzantine, block.sampling.moves
        errors = errors.reshape(1, -1)[:, :clients] if self._layout.mask else errors[:, :trials].T
        if block.sampling.has_samples:
            errors = np.where((block.sampling.inputs[t, ..., 0] != 0.0).any(axis=1), errors, np.nan)
        byzantine = np.zeros((trials, clients), np.bool_)
        if attackers.size:
            byzantine[:] = attackers.reshape(-1, trials, clients).any(axis=0)
        origin = self._target  # errors are held relative to it; a drift moves the target away from it
        target = origin + moves[t, :, :trials].T if moves.size else np.repeat(origin, trials, axis=0)
        server, models = origin - self.server, origin[:, None] - self.clients.transpose(2, 0, 1)
        values = (target, server, models, errors, byzantine)
        for q, measure in enumerate(self._metrics, 3 + self.has_honest):
            out = np.empty(trials)
            measure(n, *(value.copy(order="C") for value in values), out)
            metrics[t, q] = out

    def _stages(self, block: TrialBlock, table: KernelTable) -> Stages:
        """Return the stages that the scenario needs."""
        rival, defence = block.rival, block.defence
        is_checked = defence.hook.address != 0 and not defence.excluded_download
        loses = block.down.addresses.size or block.exchange.downloads.size or is_checked
        is_mixed = block.rule.mix.address or block.root.rows.shape[1] or block.delay.by_delay
        plain = step.learn_clients if self._layout.mask else step.learn_trials
        aggregate = server.aggregate_in_general if is_mixed else None
        stages = (
            rivals.receive if rival.is_on else links.download_in_general if loses else None,
            plain if self._is_plain else step.learn_in_general,
            rivals.upload_encoded if rival.is_on else None,
            links.deliver if block.up.addresses.size or block.delay.is_on else None,
            rivals.apply_uploads if rival.is_on and not rival.sends_model else aggregate,
        )
        return Stages(*(0 if stage is None else stage_address(stage, table.kind) for stage in stages))

    def _draw_exchange(self, first: int, count: int, drawn: Participants) -> Exchanges:
        participants, uploaders = drawn.participants, drawn.uploaders
        if self._masks is None:  # everything is sent
            every = np.arange(self._block.state.sent.shape[2], dtype=np.int32)
            down = up = np.ascontiguousarray(np.broadcast_to(every, (count, len(self.server), 1, every.size)))
        elif self._scenario.selection.coordinated:
            # What is uploaded is what all download next.
            entries = self._masks.draw(first, count + 1, participants)
            down, up = entries[:-1], entries[1:]
        else:
            down = self._masks.draw(first, count, participants)
            up = self._masks.draw(first + 1, count, uploaders)
        return Exchanges(participants, down, uploaders, up, *drawn[2:], _ALL_LEARN)

    def _draw_attack(self, first: int, count: int) -> AttackSide:
        """Return the attack with its Byzantine sets, where they are redrawn."""
        scenario, side, attackers = self._scenario, self._block.attack, self._block.attackers
        if not attackers.is_redrawn or not scenario.attacks[0].num_byzantine:
            return side
        stream = Stream(*attackers.stream)
        return side._replace(
            sets=draw_byzantine(scenario.attacks[0], stream, first, count, scenario.num_clients)
        )


class TrialByTrial:
    """Few trials of one large fleet, each with its lanes over clients (:func:`is_plain` only).

    Attributes
    ----------
    chunk : int
        How many iterations :meth:`advance` should be asked for at a time.
    """

    def __init__(
        self, scenario: "Scenario", fleet: "Fleet", seed: int, trials: range, threads: int, **measured: Any
    ) -> None:
        self._runs = [
            Run(scenario, fleet, seed, range(j, j + 1), over_clients=True, threads=threads, **measured)
            for j in trials
        ]
        self.chunk: int = self._runs[0].chunk
        self.has_honest: bool = self._runs[0].has_honest
        self.watched_from: int = 0

    @property
    def client_squares(self) -> FloatArray:
        """Sums of each client's squared errors from iteration :attr:`watched_from` on, shape (K, trials)."""
        return np.hstack([run.client_squares for run in self._runs])

    @property
    def upload_counts(self) -> IntArray:
        """How often each client has uploaded, shape (K, trials); empty unless a channel is private."""
        return np.hstack([run.upload_counts for run in self._runs])

    @property
    def watching(self) -> None:
        """A defence needs lanes over trials."""

    def advance(self, first: int, metrics: FloatArray) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, trial]``."""
        single = np.empty((*metrics.shape[:2], 1))
        for trial, run in enumerate(self._runs):
            run.watched_from = self.watched_from
            run.advance(first, single)
            metrics[:, :, trial] = single[:, :, 0]


class _Threads:
    """Threads that share the clients of one trial, each some blocks of SUM_BLOCK of them."""

    def __init__(self, count: int, blocks: int, vectors: int, layout: Layout, dimension: int) -> None:
        self.count = count
        size = SUM_BLOCK >> layout.shift
        bounds = [min(blocks * part // count * size, vectors) for part in range(count)] + [vectors]
        self._scratch = [make_step_scratch(dimension, *part) for part in pairwise(bounds)]
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def parts(self, block: KernelTable) -> list[Any]:
        """Return the block with the scratch of each thread."""
        return [KernelTable(block.values._replace(scratch=scratch), block) for scratch in self._scratch]

    def run(self, tasks: list[Callable[[], None]]) -> None:
        """Run one task in each thread."""
        if self._pool is None:
            tasks[0]()
            return
        for future in [self._pool.submit(task) for task in tasks]:
            future.result()

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self._pool.shutdown(wait=False)  # type: ignore[union-attr]


def _filled(value: FloatArray | float, *shape: int) -> FloatArray:
    out: FloatArray = empty_lanes(*shape)
    out[:] = value
    return out


def _pad_inputs(inputs: InputModel, stepsizes: FloatArray, vectors: int) -> tuple[InputModel, FloatArray]:
    """Return numbers of the clients as whole vectors; those added never change."""
    columns = _filled(0.0, 3, vectors * WIDTH)
    columns[:, : stepsizes.size] = inputs.scale, inputs.noise_deviation, stepsizes
    return inputs._replace(scale=columns[0], noise_deviation=columns[1]), columns[2]
