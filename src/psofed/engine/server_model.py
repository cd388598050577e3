"""Runs algorithms whose clients hold no model of their own: one kernel for all of them.

The kernel holds the server's error w − w_n. Every client's data are drawn in every iteration, exactly as for
PSO-Fed, since the network MSE is the mean over all clients of (y_k − w_nᵀx_k)² at the server's model. Between
exchanges w_n stands still.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.engine.attackers import redraw_byzantine
from psofed.engine.bodies import raise_python_error
from psofed.engine.compiling import compiled
from psofed.engine.frames.exchange import exchange_hooks
from psofed.engine.hooks import Uploads
from psofed.engine.inputs import InputModel, colour, make_input_model
from psofed.engine.normals import mix_word, next_normals, normal_pair, split_word, unit_uniform
from psofed.engine.participation import draw_participants
from psofed.engine.server_side import ServerSide, aggregate
from psofed.engine.streams import make_stream
from psofed.engine.test_set import draw_test_set, test_error

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

# About how many bytes of participants are drawn ahead at a time.
_CHUNK_BYTES = 4_000_000


class ServerModelRun:
    """Several trials in lock step.

    Attributes
    ----------
    server : array (D, lanes)
        Error w − w_n.
    chunk : int
        How many iterations :meth:`advance` should be asked for at a time.
    """

    def __init__(self, scenario: "Scenario", fleet: "Fleet", seed: int, trials: range) -> None:
        algorithm = scenario.algorithm
        exchange, self._traffic = algorithm.exchange(scenario), algorithm.traffic(scenario)
        self._scenario, self._exchange = scenario, exchange
        lanes = len(trials)
        self._streams = {
            source: make_stream(seed, source, trials)
            for source in ("data", "participation", "attack", "test", "algorithm", "root")
        }
        self._test_set = draw_test_set(scenario, fleet, self._streams["test"])
        self._inputs: InputModel = make_input_model(fleet)
        self._noise_deviation = np.sqrt(fleet.noise_variance)
        # Root data are of the model's entries, so a rule that has some can only join models.
        root = self._streams["root"] if exchange.sends_model else None
        self._server_side = ServerSide(scenario, fleet, self._streams["attack"], root)
        self._kernel = _make_kernel(lanes)
        self._hooks = exchange_hooks(algorithm)
        self._decodes = algorithm.decodes()
        self._memory = np.zeros((exchange.memory, lanes))
        self.server = np.repeat(fleet.target[:, None], lanes, axis=1)
        # What attacks and aggregation rules take for the model before the exchange.
        self._base = fleet.target.copy() if exchange.sends_model else np.zeros(exchange.numbers)
        self._target = fleet.target.copy()
        self.chunk = int(np.clip(_CHUNK_BYTES // (4 * scenario.num_participants * lanes), 1, 256))

    def advance(self, first: int, metrics: NDArray[np.float64]) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, lane]``."""
        scenario, exchange, stream = self._scenario, self._exchange, self._streams["participation"]
        participants = np.empty((len(metrics), scenario.num_participants, stream.key.size), np.int32)
        draw_participants(stream.key, stream.gamma, first, scenario.num_clients, participants)
        exchanges = [self._traffic.exchanges_in(n) for n in range(first, first + len(metrics))]
        data, own = self._streams["data"], self._streams["algorithm"]
        self._kernel(
            first,
            data.key,
            data.gamma,
            *self._inputs,
            self._noise_deviation,
            scenario.stepsize,
            participants,
            np.array(exchanges, np.int64),
            self._server_side.attack,
            self._server_side.rule,
            own.key,
            own.gamma,
            exchange.words_per_iteration(scenario.num_clients),
            exchange.normals,
            exchange.uniforms,
            exchange.client_uniforms,
            exchange.fresh,
            *self._hooks,
            self._decodes,
            exchange.decode_joined,
            exchange.sends_model,
            exchange.numbers,
            self._memory,
            self._test_set.rows,
            self._test_set.is_gram,
            self._test_set.instances,
            self._base,
            self._target,
            self.server,
            metrics,
        )
        self._server_side.check()
        raise_python_error(*self._hooks)


@cache
def _make_kernel(lanes: int) -> Any:
    """Compile the kernel for a number of lanes; with it fixed, loops over lanes become vector code."""

    @compiled
    def kernel(
        first, key, gamma, shape, scale, correlation, factors, noise_deviation, stepsize, participants, exchanges,
        attack, rule, own_key, own_gamma, own_words, num_normals, num_uniforms, num_client_uniforms, fresh,
        encode, decode, apply, has_decode, decode_joined, sends_model, numbers, memory,
        test_rows, test_is_gram, test_instances, base, target, server, metrics,
    ):  # fmt: skip
        num_clients = noise_deviation.size
        dimension = server.shape[0]
        words = (dimension + 2) // 2
        most = participants.shape[1]
        counter = np.empty(lanes, np.uint64)
        high, low = np.empty((words, lanes), np.uint32), np.empty((words, lanes), np.int32)
        drawn = np.empty((2 * words, lanes), np.float32)
        inputs = np.empty((dimension, lanes))
        error = np.empty(lanes)
        squares = np.empty(lanes)
        # Place of each client among the participants, −1 for the others.
        place = np.full((num_clients, lanes), -1, np.int32)
        updates = np.empty((most, dimension, lanes))
        normals = np.empty((num_normals, lanes))
        uniforms = np.empty((num_uniforms, lanes))
        client_uniforms = np.empty((most, num_client_uniforms, lanes))
        sent = np.empty((most, numbers, lanes))
        decodes_each = has_decode and not decode_joined
        joined_size = dimension if decodes_each else numbers
        joined = np.empty((joined_size, lanes))
        joined_room, zeros = np.empty((joined_size, lanes)), np.zeros(joined_size)
        nothing = np.zeros((numbers, lanes))
        decoded = np.empty((most if decodes_each else 1, dimension, lanes))
        change = np.empty((dimension, lanes))
        # Participants and lanes need not differ in which number is which.
        entries = np.empty((most, max(numbers, dimension), lanes), np.int32)
        for i in range(entries.shape[1]):
            entries[:, i] = i
        sent_entries = entries[:, :numbers].copy()
        joined_entries = entries[:, :joined_size].copy()
        if not fresh:
            _draw_shared(0, own_key, own_gamma, own_words, normals, uniforms)
        for lane in range(lanes):
            counter[lane] = key[lane] + np.uint64(first * num_clients * words) * gamma[lane]

        for t in range(metrics.shape[0]):
            for lane in range(lanes):
                squares[lane] = 0.0
            for i in range(dimension):
                for lane in range(lanes):
                    squares[lane] += server[i, lane] * server[i, lane]
            for lane in range(lanes):
                metrics[t, 1, lane] = squares[lane]
                squares[lane] = 0.0
            test_error(server, test_rows, test_is_gram, test_instances, metrics[t, 2])

            count = exchanges[t]
            if attack.on_samples:
                redraw_byzantine(first + t, attack.attackers)
            for p in range(count):
                for lane in range(lanes):
                    place[participants[t, p, lane], lane] = p
            for k in range(num_clients):
                next_normals(lanes, counter, gamma, high, low, drawn)
                colour(lanes, shape, scale, correlation, factors, k, drawn, inputs)
                for lane in range(lanes):
                    error[lane] = noise_deviation[k] * drawn[dimension, lane]
                for i in range(dimension):
                    for lane in range(lanes):
                        error[lane] += inputs[i, lane] * server[i, lane]
                for lane in range(lanes):
                    squares[lane] += error[lane] * error[lane]
                if count and attack.on_samples:
                    # Metrics are of the clean sample, the update of the poisoned one.
                    for lane in range(lanes):
                        error[lane] = noise_deviation[k] * drawn[dimension, lane]
                    attack.poison(attack.token, first + t, k, attack.attackers, target, inputs, error)
                    for i in range(dimension):
                        for lane in range(lanes):
                            error[lane] += inputs[i, lane] * server[i, lane]
                if count:
                    for lane in range(lanes):
                        p = place[k, lane]
                        if p >= 0:
                            place[k, lane] = -1
                            for i in range(dimension):
                                updates[p, i, lane] = stepsize * error[lane] * inputs[i, lane]
            for lane in range(lanes):
                metrics[t, 0, lane] = squares[lane] / num_clients
            if count == 0:
                continue

            n = first + t
            if fresh:
                _draw_shared(n, own_key, own_gamma, own_words, normals, uniforms)
            _draw_per_client(
                n, own_key, own_gamma, own_words, (num_normals + 1) // 2 + num_uniforms,
                participants[t][:count], client_uniforms[:count],
            )  # fmt: skip
            sends = sent[:count]
            encode.call(
                encode.token, stepsize, encode.options, updates[:count], normals, uniforms,
                client_uniforms[:count], sends,
            )  # fmt: skip
            # Hooks of attacks and rules take errors: a model's entry is `base` less what they see.
            _negate(sends)
            if sends_model:
                for p in range(count):
                    sends[p] += server
            uploads = Uploads(participants[t][:count], sent_entries[:count], sends)
            if attack.on_uploads:
                attack.corrupt(
                    attack.token, n, attack.attackers, base, server if sends_model else nothing, uploads
                )
            if sends_model:
                aggregate(rule, base, uploads, change, server)
                continue
            joined[:] = 0.0
            if decodes_each:
                _negate(sends)
                decode.call(
                    decode.token, count, stepsize, decode.options, sends, normals, uniforms, decoded[:count]
                )
                _negate(decoded[:count])
                uploads = Uploads(participants[t][:count], joined_entries[:count], decoded[:count])
            aggregate(rule, zeros, uploads, joined_room, joined)
            for i in range(joined_size):
                for lane in range(lanes):
                    joined[i, lane] = -joined[i, lane]
            result = joined
            if has_decode and decode_joined:
                decode.call(
                    decode.token, count, stepsize, decode.options, joined.reshape((1, numbers, lanes)), normals,
                    uniforms, decoded,
                )  # fmt: skip
                result = decoded[0]
            apply.call(apply.token, count, stepsize, apply.options, result, normals, uniforms, memory, change)
            for i in range(dimension):
                for lane in range(lanes):
                    server[i, lane] -= change[i, lane]

    return kernel


@compiled
def _negate(values):
    for p in range(values.shape[0]):
        for i in range(values.shape[1]):
            for lane in range(values.shape[2]):
                values[p, i, lane] = -values[p, i, lane]


@compiled
def _draw_shared(n, key, gamma, words, normals, uniforms):
    """Fill ``normals`` (any, lanes), then ``uniforms`` (any, lanes), from the words of iteration `n`."""
    pairs = (normals.shape[0] + 1) // 2
    for j in range(pairs):
        for lane in range(normals.shape[1]):
            word = mix_word(key[lane] + np.uint64(n * words + j) * gamma[lane])
            high, low = split_word(word)
            x, y = normal_pair(high, low)
            normals[2 * j, lane] = x
            if 2 * j + 1 < normals.shape[0]:
                normals[2 * j + 1, lane] = y
    for j in range(uniforms.shape[0]):
        for lane in range(uniforms.shape[1]):
            word = mix_word(key[lane] + np.uint64(n * words + pairs + j) * gamma[lane])
            uniforms[j, lane] = unit_uniform(word)


@compiled
def _draw_per_client(n, key, gamma, words, shared_words, clients, uniforms):
    """Fill ``uniforms`` (P, any, lanes) with what each of ``clients`` (P, lanes) draws in iteration `n`."""
    width = uniforms.shape[1]
    for p in range(uniforms.shape[0]):
        for j in range(width):
            for lane in range(uniforms.shape[2]):
                address = n * words + shared_words + clients[p, lane] * width + j
                uniforms[p, j, lane] = unit_uniform(mix_word(key[lane] + np.uint64(address) * gamma[lane]))
