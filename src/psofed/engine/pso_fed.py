"""A run of PSO-Fed: draws participants and masks chunk by chunk and calls the kernel."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.bodies import raise_python_error, release
from psofed.engine.frames.drift import TargetMoves
from psofed.engine.frames.learner import make_learning
from psofed.engine.frames.selection import Selector
from psofed.engine.frames.stream import make_inputs
from psofed.engine.inputs import WHITE, make_input_model
from psofed.engine.lanes import empty_lanes
from psofed.engine.network import Drawn, Network
from psofed.engine.pso_fed_kernel import Exchanges, Extras, ModelState, advance, make_scratch
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

_SOURCES = ("data", "participation", "uplink", "masks", "test", "root", "pre_aggregation")

# What the kernel is handed where it needs none.
_NO_INPUTS, _NO_RESIDUALS, _NO_MOVES = np.zeros((0, 0, 0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0, 0))


class PsoFedRun:
    """Several trials of PSO-Fed in lock step.

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
    ) -> None:
        self._scenario = scenario
        lanes = len(trials)
        self._streams = {source: make_stream(seed, source, trials) for source in _SOURCES}
        if samples is None and not scenario.is_linear:
            samples = FunctionSamples(scenario, fleet, self._streams["data"])
        self.samples: TrialSamples | None = samples
        self._tests_on_next = samples is not None and samples.tests_on_next
        self._test_set = (
            NO_TESTS if self._tests_on_next else draw_test_set(scenario, fleet, self._streams["test"])
        )
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
        self.clients: FloatArray = empty_lanes(scenario.num_clients, scenario.dimension, lanes)
        self.clients[:] = self.server
        exchanged = scenario.num_participants * (scenario.num_shared + 1) * lanes
        if scenario.availability is not None:
            exchanged += scenario.num_clients * lanes // 8
        self.chunk: int = int(np.clip(_CHUNK_BYTES // (8 * exchanged), 1, 512))
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
        advance(
            first,
            self._streams["data"],
            self._inputs,
            self._learning.stepsizes,
            self._draw_exchange(first, len(metrics), drawn),
            self._server_side.attack,
            self._server_side.search,
            self._server_side.defence,
            self._server_side.rule,
            self._test_set,
            self._target,
            self._make_extras(first, len(metrics), given),
            drawn.network,
            self._server_side.groups,
            ModelState(self.clients, self.server, self.client_squares),
            self._scratch,
            metrics,
        )
        self._server_side.check()
        self._network.check()
        raise_python_error(self._learning.hook, self._stream.hook)
        if given is not None:
            # The kernel divides by all clients; those without a sample do not count.
            share = self._scenario.num_clients / np.maximum(given.active, 1)
            metrics[:, 0] *= share[:, None]
            if self._tests_on_next:
                metrics[:, 2] *= share[:, None]

    def _make_extras(self, first: int, count: int, given: Chunk | None) -> Extras | None:
        availability = self._scenario.availability
        is_plain = (
            self._scenario.learner.kind == "lms"
            and self._stream.is_independent
            and self._inputs.shape == WHITE
            and not any(attack.poisons_samples() for attack in self._scenario.attacks)
            and (availability is None or availability.learns == "always")
        )
        if given is None and self._moves is None and is_plain and not self._offsets.size:
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
        if hasattr(self, "_stream"):
            release(self._learning.hook, self._stream.hook)

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
