"""A run of PSO-Fed: draws participants and masks chunk by chunk and calls the kernel."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.attackers import redrawn_clients
from psofed.engine.bodies import HookHolder
from psofed.engine.frames.drift import TargetMoves
from psofed.engine.frames.learner import make_learning
from psofed.engine.frames.selection import Selector
from psofed.engine.frames.stream import make_inputs
from psofed.engine.inputs import make_input_model
from psofed.engine.lanes import WIDTH, empty_lanes
from psofed.engine.network import Drawn, Network
from psofed.engine.over_clients import (
    AFTER_LEARNING,
    BEFORE_LEARNING,
    ClientLanes,
    SharedLearning,
    make_client_lanes,
    threads_for,
)
from psofed.engine.pso_fed_kernel import advance
from psofed.engine.pso_fed_state import Exchanges, Extras, ModelState, make_scratch
from psofed.engine.samples import Chunk, FunctionSamples, TrialSamples
from psofed.engine.server_side import ServerSide, attack_streams
from psofed.engine.streams import make_stream
from psofed.engine.test_set import NO_TESTS, draw_test_set

if TYPE_CHECKING:
    from psofed.engine.hooks import Watching
    from psofed.fleet import Fleet
    from psofed.parts.watching import WatchPlan
    from psofed.scenario import Scenario

# About how many bytes of participants and masks are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000

# About how many client updates are made at a time: whoever watches or stops a run waits for no more.
_CHUNK_UPDATES = 100_000_000

_SOURCES = ("data", "participation", "uplink", "masks", "root", "pre_aggregation")

# What the kernel is handed where it needs none.
_NO_INPUTS, _NO_RESIDUALS, _NO_MOVES = np.zeros((0, 0, 0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0, 0))


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
        and not any(attack.poisons_samples() for attack in scenario.attacks)
    )


class PsoFedRun(HookHolder):
    """Several trials of PSO-Fed in lock step, or one trial with its lanes over clients.

    Parameters
    ----------
    scenario, fleet, seed
        What is simulated.
    trials : range
        A multiple of WIDTH trials; a single one where :func:`is_plain`.
    samples, plan
        Given samples, and what a defence needs to know.
    threads : int
        Threads that share the clients of a single trial.

    Attributes
    ----------
    clients : array (K, D, lanes)
        Errors w − w_{k,n}.
    server : array (D, lanes)
        Error w − w_n.
    chunk : int
        How many iterations :meth:`advance` should be asked for at a time.
    samples : TrialSamples or None
        The samples, where they are not drawn; may be replaced by others of the same shape between two calls.
    client_squares : array (K, lanes)
        Sums of each client's squared errors from iteration :attr:`watched_from` on (given samples only).
    """

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        seed: int,
        trials: range,
        samples: TrialSamples | None = None,
        plan: "WatchPlan | None" = None,
        threads: int = 1,
    ) -> None:
        self._scenario = scenario
        self._is_plain = is_plain(scenario)
        lanes = len(trials)
        self._streams = {source: make_stream(seed, source, trials) for source in _SOURCES}
        if samples is None and not scenario.is_linear:
            samples = FunctionSamples(scenario, fleet, self._streams["data"])
        self.samples: TrialSamples | None = samples
        self._tests_on_next = samples is not None and samples.tests_on_next
        # A single trial is measured in all lanes of a vector.
        test_stream = make_stream(seed, "test", range(trials.start, trials.start + max(lanes, WIDTH)))
        self._test_set = NO_TESTS if self._tests_on_next else draw_test_set(scenario, fleet, test_stream)
        self._moves = (
            None
            if scenario.drift is None
            else TargetMoves(scenario.drift, scenario.dimension, make_stream(seed, "drift", trials))
        )
        self._inputs = make_input_model(fleet, draws=samples is None)
        self._learning = make_learning(scenario, lanes)
        self._stream = make_inputs(scenario, lanes)
        self._selector = Selector(
            scenario.selection.pattern, scenario.selection.coordinated, self._streams["masks"],
            scenario.num_clients, scenario.dimension, scenario.num_shared,
        )  # fmt: skip
        self._hooks = (self._learning.hook, self._stream.hook)
        self._network = Network(scenario, seed, trials)
        # Root data are drawn as y = wᵀx + ν; for other streams there are none.
        root = self._streams["root"] if samples is None else None
        self._server_side = ServerSide(
            scenario,
            fleet,
            attack_streams(scenario, seed, trials),
            self._streams["pre_aggregation"],
            root,
            scenario.num_shared,
            plan,
        )
        self._target = fleet.target.copy()
        self._offsets = _NO_MOVES
        if fleet.target_offsets is not None:
            self._offsets = np.repeat(fleet.target_offsets[:, :, None], lanes, axis=2)
        self._scratch = make_scratch(
            scenario.dimension, scenario.num_participants, scenario.num_shared, lanes
        )
        self.server: FloatArray = empty_lanes(scenario.dimension, lanes)
        self.server[:] = fleet.target[:, None]
        self._over_clients: ClientLanes | None = None
        self._shared: SharedLearning | None = None
        self.clients: FloatArray
        if lanes == 1:
            data = self._streams["data"]
            threads = threads_for(scenario.num_clients, threads)
            own = make_client_lanes(self._inputs, self._learning.stepsizes, fleet.target, data)
            self._over_clients = own
            self.clients = own.models[:, : scenario.num_clients].T[:, :, None]
            if threads > 1:
                self._shared = SharedLearning(own, data, threads)
        else:
            self.clients = empty_lanes(scenario.num_clients, scenario.dimension, lanes)
            self.clients[:] = self.server
        exchanged = scenario.num_participants * (scenario.num_shared + 1) * lanes
        if scenario.availability is not None:
            exchanged += scenario.num_clients * lanes // 8
        exchanged += redrawn_clients(scenario.attacks) * lanes // 2
        most = int(np.clip(_CHUNK_UPDATES // (scenario.num_clients * lanes), 1, 512))
        self.chunk: int = int(np.clip(_CHUNK_BYTES // (8 * exchanged), 1, most))
        self.client_squares: FloatArray = np.zeros((scenario.num_clients, lanes))
        self.watched_from = 0
        if samples is not None:
            self.chunk = int(np.clip(_CHUNK_BYTES // samples.bytes_per_iteration, 1, self.chunk))

    @property
    def upload_counts(self) -> IntArray:
        """How often each client has uploaded, shape (K, lanes); empty unless a channel is private."""
        return self._network.upload_counts

    @property
    def watching(self) -> "Watching | None":
        """Memory of the defence; None without one."""
        return self._server_side.watching

    def advance(self, first: int, metrics: FloatArray) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, lane]``."""
        given = None if self.samples is None else self.samples.chunk(first, len(metrics))
        uplink = self._streams["uplink"] if self._scenario.uplink == "redrawn" else None
        drawn = self._network.draw(first, len(metrics), self._streams["participation"], uplink)
        attack = self._server_side.attack_in(first, len(metrics))
        over_clients, network = self._over_clients, drawn.network
        exchange, extras = (
            self._draw_exchange(first, len(metrics), drawn), self._make_extras(first, len(metrics), given),
        )  # fmt: skip

        def call(over: ClientLanes | None) -> None:
            side, remembered = self._server_side, self.clients if over is None else _NO_MOVES
            advance(
                first, self._streams["data"], self._inputs, self._learning.stepsizes, exchange, attack,
                side.defence, side.rule, self._test_set, self._target, extras, network, side.groups,
                over, ModelState(self.clients, self.server, self.client_squares, remembered),
                self._scratch, metrics,
            )  # fmt: skip

        if over_clients is None:
            call(None)
        elif self._shared is None:
            call(over_clients._replace(stop=len(metrics)))
        else:
            learns = None if network is None or not network.learns.size else network.learns
            for t in range(len(metrics)):
                call(over_clients._replace(phase=BEFORE_LEARNING, start=t, stop=t + 1))
                metrics[t, 0, 0] = self._shared.learn(first + t, t, learns)
                call(over_clients._replace(phase=AFTER_LEARNING, start=t, stop=t + 1))
        self._server_side.check()
        self._network.check()
        self.check()
        if given is not None:
            # The kernel divides by all clients; those without a sample do not count.
            share = self._scenario.num_clients / np.maximum(given.active, 1)
            metrics[:, 0] *= share[:, None]
            if self._tests_on_next:
                metrics[:, 2] *= share[:, None]

    def _make_extras(self, first: int, count: int, given: Chunk | None) -> Extras | None:
        if self._is_plain and given is None:
            return None
        return Extras(
            given is not None,
            _NO_INPUTS if given is None else given.inputs,
            _NO_RESIDUALS if given is None else given.residuals,
            self._tests_on_next,
            self.watched_from - first,
            _NO_MOVES if self._moves is None else self._moves.draw(first, count),
            self._offsets,
            self._learning,
            self._stream,
        )

    def __del__(self) -> None:
        shared: SharedLearning | None = getattr(self, "_shared", None)
        if shared is not None:
            shared.close()
        super().__del__()

    def _draw_exchange(self, first: int, count: int, drawn: Drawn) -> Exchanges:
        participants, uploaders = drawn.participants, drawn.uploaders
        if self._scenario.selection.coordinated:
            # What is uploaded is what all download next.
            entries = self._selector.draw(first, count + 1, participants)
            return Exchanges(participants, entries[:-1], uploaders, entries[1:])
        return Exchanges(
            participants,
            self._selector.draw(first, count, participants),
            uploaders,
            self._selector.draw(first + 1, count, uploaders),
        )


class TrialByTrial:
    """Few trials of one large fleet, each with its lanes over clients (:func:`is_plain` only).

    Attributes
    ----------
    chunk : int
        How many iterations :meth:`advance` should be asked for at a time.
    """

    watching = None

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        seed: int,
        trials: range,
        threads: int,
    ) -> None:
        self._runs = [PsoFedRun(scenario, fleet, seed, range(j, j + 1), threads=threads) for j in trials]
        self.chunk: int = self._runs[0].chunk

    @property
    def upload_counts(self) -> IntArray:
        """How often each client has uploaded, shape (K, trials); empty unless a channel is private."""
        return np.hstack([run.upload_counts for run in self._runs])

    def advance(self, first: int, metrics: FloatArray) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, trial]``."""
        own = np.empty((*metrics.shape[:2], 1))
        for trial, run in enumerate(self._runs):
            run.advance(first, own)
            metrics[:, :, trial] = own[:, :, 0]
