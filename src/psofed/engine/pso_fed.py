"""PSO-Fed's kernel: all clients and the server, several trials in lock step.

The kernel holds errors, w − w_{k,n} and w − w_n, instead of models: the recursion is the same and y need not
be formed. A target that moves (drift) adds xᵀ(w*_n − w*_0) to the labels, with errors still counted from w*_0;
samples that are not the paper's come as arrays (:mod:`psofed.engine.samples`). The kernel is compiled apart for
each of these, and the paper's case pays for none.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.engine.attackers import redraw_byzantine
from psofed.engine.compiling import compiled
from psofed.engine.frames.drift import TargetMoves
from psofed.engine.frames.selection import Selector
from psofed.engine.hooks import Uploads
from psofed.engine.inputs import InputModel, colour, make_input_model
from psofed.engine.normals import next_normals
from psofed.engine.participation import draw_participants
from psofed.engine.samples import FunctionSamples, Samples, error_on_next, has_sample, take_sample
from psofed.engine.server_side import ServerSide, aggregate
from psofed.engine.streams import make_stream
from psofed.engine.test_set import NO_TESTS, draw_test_set, test_error

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

# About how many bytes of participants, masks and perturbations are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000

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
    client_squares : array (K, lanes)
        Sums of each client's squared errors from iteration :attr:`watched_from` on (given samples only).
    """

    def __init__(
        self, scenario: "Scenario", fleet: "Fleet", seed: int, trials: range, samples: Samples | None = None
    ) -> None:
        self._scenario = scenario
        lanes = len(trials)
        self._streams = {
            source: make_stream(seed, source, trials)
            for source in ("data", "participation", "uplink", "masks", "attack", "test", "root")
        }
        if samples is None and not scenario.is_linear:
            samples = FunctionSamples(scenario, fleet, self._streams["data"])
        self._samples = samples
        self._tests_on_next = samples is not None and samples.tests_on_next
        self._test_set = (
            NO_TESTS if self._tests_on_next else draw_test_set(scenario, fleet, self._streams["test"])
        )
        self._moves = (
            None
            if scenario.drift is None
            else TargetMoves(scenario.drift, scenario.dimension, make_stream(seed, "drift", trials))
        )
        self._inputs: InputModel = make_input_model(fleet)
        self._noise_deviation = np.sqrt(fleet.noise_variance)
        self._selector = Selector(
            scenario.selection.pattern, scenario.selection.coordinated, self._streams["masks"],
            scenario.num_clients, scenario.dimension, scenario.num_shared,
        )  # fmt: skip
        # Root data are drawn as y = wᵀx + ν; for other streams there are none.
        root = self._streams["root"] if samples is None else None
        self._server_side = ServerSide(scenario, fleet, self._streams["attack"], root)
        self._target = fleet.target.copy()
        self._kernel = _make_kernel(lanes, samples is not None, self._moves is not None)
        self.server = np.repeat(fleet.target[:, None], lanes, axis=1)
        self.clients = np.repeat(self.server[None], scenario.num_clients, axis=0)
        exchanged = scenario.num_participants * (scenario.num_shared + 1) * lanes
        self.chunk = int(np.clip(_CHUNK_BYTES // (16 * exchanged), 1, 256))
        self.client_squares = np.zeros((scenario.num_clients, lanes))
        self.watched_from = 0
        if samples is not None:
            self.chunk = int(np.clip(_CHUNK_BYTES // samples.bytes_per_iteration, 1, self.chunk))

    def advance(self, first: int, metrics: NDArray[np.float64]) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, lane]``."""
        participants = self._draw_participants("participation", first, len(metrics))
        redrawn = self._scenario.uplink == "redrawn"
        uploaders = self._draw_participants("uplink", first, len(metrics)) if redrawn else participants
        data = self._streams["data"]
        given = None if self._samples is None else self._samples.chunk(first, len(metrics))
        moves = _NO_MOVES if self._moves is None else self._moves.draw(first, len(metrics))
        self._kernel(
            first,
            data.key,
            data.gamma,
            *self._inputs,
            self._noise_deviation,
            self._scenario.stepsize,
            participants,
            self._selector.draw(first, participants),
            uploaders,
            self._selector.draw(first + 1, uploaders),
            self._server_side.attack,
            self._server_side.rule,
            self._test_set.rows,
            self._test_set.is_gram,
            self._test_set.instances,
            self._target,
            _NO_INPUTS if given is None else given.inputs,
            _NO_RESIDUALS if given is None else given.residuals,
            self._tests_on_next,
            moves,
            self.watched_from - first,
            self.client_squares,
            self.clients,
            self.server,
            metrics,
        )
        self._server_side.check()
        if given is not None:
            # The kernel divides by all clients; those without a sample do not count.
            share = self._scenario.num_clients / np.maximum(given.active, 1)
            metrics[:, 0] *= share[:, None]
            if self._tests_on_next:
                metrics[:, 2] *= share[:, None]

    def _draw_participants(self, source: str, first: int, count: int) -> NDArray[np.int32]:
        stream = self._streams[source]
        out = np.empty((count, self._scenario.num_participants, stream.key.size), np.int32)
        draw_participants(stream.key, stream.gamma, first, self._scenario.num_clients, out)
        return out


@cache
def _make_kernel(lanes: int, given: bool, moving: bool) -> Any:
    """Compile the kernel for a number of lanes; with it fixed, loops over lanes become vector code.

    `given`: samples come as arrays. `moving`: the target moves. Each is compiled in only where it is needed.
    """

    @compiled
    def kernel(
        first, key, gamma, shape, scale, correlation, factors, noise_deviation, stepsize,
        participants, downloaded, uploaders, uploaded,
        attack, rule,
        test_rows, test_is_gram, test_instances, target,
        given_inputs, given_residuals, tests_on_next, moves, watched_from, client_squares,
        clients, server, metrics,
    ):  # fmt: skip
        num_clients, dimension, _ = clients.shape
        words = (dimension + 2) // 2
        num_participants, num_shared = uploaded.shape[1:3]
        counter = np.empty(lanes, np.uint64)
        high, low = np.empty((words, lanes), np.uint32), np.empty((words, lanes), np.int32)
        normals = np.empty((2 * words, lanes), np.float32)
        inputs = np.empty((dimension, lanes))
        error = np.empty(lanes)
        squares = np.empty(lanes)
        sent = np.empty((num_participants, num_shared, lanes))
        room = np.empty((dimension, lanes))
        for lane in range(lanes):
            counter[lane] = key[lane] + np.uint64(first * num_clients * words) * gamma[lane]

        distance = np.empty((dimension, lanes)) if moving else server  # of the server to the target
        for t in range(metrics.shape[0]):
            if moving:
                for i in range(dimension):
                    for lane in range(lanes):
                        distance[i, lane] = server[i, lane] + moves[t, i, lane]
            for lane in range(lanes):
                squares[lane] = 0.0
            for i in range(dimension):
                for lane in range(lanes):
                    squares[lane] += distance[i, lane] * distance[i, lane]
            for lane in range(lanes):
                metrics[t, 1, lane] = squares[lane]
                squares[lane] = 0.0
            if given and tests_on_next:
                error_on_next(lanes, server, given_inputs[t], given_residuals[t], metrics[t, 2])
            else:
                test_error(distance, test_rows, test_is_gram, test_instances, metrics[t, 2])
            if attack.on_samples:
                redraw_byzantine(first + t, attack.attackers)

            for p in range(num_participants):
                for m in range(num_shared):
                    for lane in range(lanes):
                        i = downloaded[t, p, m, lane]
                        clients[participants[t, p, lane], i, lane] = server[i, lane]

            for k in range(num_clients):
                if given:
                    take_sample(lanes, given_inputs[t, k], given_residuals[t, k], inputs, error)
                else:
                    next_normals(lanes, counter, gamma, high, low, normals)
                    colour(lanes, shape, scale, correlation, factors, k, normals, inputs)
                    for lane in range(lanes):
                        error[lane] = noise_deviation[k] * normals[dimension, lane]
                if moving:
                    for i in range(dimension):
                        for lane in range(lanes):
                            error[lane] += inputs[i, lane] * moves[t, i, lane]
                for i in range(dimension):
                    for lane in range(lanes):
                        error[lane] += inputs[i, lane] * clients[k, i, lane]
                if given and t >= watched_from:
                    for lane in range(lanes):
                        client_squares[k, lane] += error[lane] * error[lane]
                for lane in range(lanes):
                    squares[lane] += error[lane] * error[lane]
                if attack.on_samples and not (given and not has_sample(given_inputs[t, k])):
                    # Metrics are of the clean sample, the step of the poisoned one.
                    if given:
                        take_sample(lanes, given_inputs[t, k], given_residuals[t, k], inputs, error)
                    else:
                        for lane in range(lanes):
                            error[lane] = noise_deviation[k] * normals[dimension, lane]
                    if moving:
                        for i in range(dimension):
                            for lane in range(lanes):
                                error[lane] += inputs[i, lane] * moves[t, i, lane]
                    attack.poison(attack.token, first + t, k, attack.attackers, target, inputs, error)
                    for i in range(dimension):
                        for lane in range(lanes):
                            error[lane] += inputs[i, lane] * clients[k, i, lane]
                for lane in range(lanes):
                    error[lane] *= stepsize
                for i in range(dimension):
                    for lane in range(lanes):
                        clients[k, i, lane] -= error[lane] * inputs[i, lane]
            for lane in range(lanes):
                metrics[t, 0, lane] = squares[lane] / num_clients

            for p in range(num_participants):
                for m in range(num_shared):
                    for lane in range(lanes):
                        sent[p, m, lane] = clients[uploaders[t, p, lane], uploaded[t, p, m, lane], lane]
            uploads = Uploads(uploaders[t], uploaded[t], sent)
            if attack.on_uploads:
                attack.corrupt(attack.token, first + t, attack.attackers, target, server, uploads)
            aggregate(rule, target, uploads, room, server)

    return kernel
