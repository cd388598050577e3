"""LMS steps of one trial with lanes over clients, for fleets that are simulated less often than there are lanes.

Models lie as an array (D, K), so entry i of WIDTH neighbouring clients is one vector; seen as (K, D, 1), other kernels
take it as the models of one trial. Every operation, and the order of the sum over clients, is that of lanes over
trials, so the bits are the same.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH, empty_lanes, fma, load, pick_if_equal, spread, store, to_float64
from psofed.engine.normals import WORDS_AHEAD, next_normals
from psofed.engine.streams import Stream, WordArray

# What a call of the kernel does: whole iterations, or what precedes and what follows learning.
WHOLE, BEFORE_LEARNING, AFTER_LEARNING = 0, 1, 2

# Fewer clients than this are not worth waking a thread for.
_CLIENTS_PER_THREAD = 100_000


class ClientScratch(NamedTuple):
    """Scratch of one thread, as in :class:`psofed.engine.pso_fed_kernel.Scratch`; `steps` is the stream's increment."""

    counter: WordArray
    steps: WordArray
    hashed: WordArray
    normals: NDArray[np.float32]


class ClientLanes(NamedTuple):
    """One trial whose lanes are clients; K is padded to a multiple of WIDTH by clients that never change.

    Attributes
    ----------
    phase : int
        WHOLE, BEFORE_LEARNING or AFTER_LEARNING.
    start, stop : int
        The iterations of the chunk that a call is for.
    num_clients : int
        K, without padding.
    models : array (D, K padded)
        Errors w − w_{k,n}.
    scale, deviation, stepsizes : arrays (K padded,)
        ς_k, standard deviations of the noise, and μ_k.
    errors : array (K padded,) or (WIDTH,)
        Prediction errors of all clients, or of those at hand if they are summed at once.
    server, measured : arrays (D, WIDTH) and (1, 3, WIDTH)
        Scratch: the server's error and its metrics in every lane.
    scratch : ClientScratch
        For learning.
    """

    phase: int
    start: int
    stop: int
    num_clients: int
    models: FloatArray
    scale: FloatArray
    deviation: FloatArray
    stepsizes: FloatArray
    errors: FloatArray
    server: FloatArray
    measured: FloatArray
    scratch: ClientScratch


def make_client_lanes(
    inputs: InputModel, stepsizes: FloatArray, target: FloatArray, data: Stream, threads: int
) -> ClientLanes:
    """Return the lanes of one trial, all models zero, for learning on `threads` threads."""
    num_clients, dimension = inputs.scale.size, target.size
    padded = -(-num_clients // WIDTH) * WIDTH
    models = empty_lanes(dimension, padded)
    models[:] = target[:, None]
    columns = empty_lanes(3, padded)
    columns[:, :num_clients] = inputs.scale, inputs.noise_deviation, stepsizes
    columns[:, num_clients:] = 0.0
    return ClientLanes(
        WHOLE, 0, 0, num_clients, models, scale=columns[0], deviation=columns[1], stepsizes=columns[2],
        errors=empty_lanes(padded if threads > 1 else WIDTH),
        server=empty_lanes(dimension, WIDTH),
        measured=empty_lanes(1, 3, WIDTH),
        scratch=make_client_scratch(dimension, data),
    )  # fmt: skip


def make_client_scratch(dimension: int, data: Stream) -> ClientScratch:
    """Allocate the scratch of one thread."""
    steps = empty_lanes(WIDTH, dtype=np.uint64)
    steps[:] = data.gamma[0]
    return ClientScratch(
        empty_lanes(WIDTH, dtype=np.uint64),
        steps,
        empty_lanes(WORDS_AHEAD, WIDTH, dtype=np.uint64),
        empty_lanes(2 * ((dimension + 2) // 2), WIDTH, dtype=np.float32),
    )


def threads_for(num_clients: int, threads: int) -> int:
    """Return how many of `threads` threads should share the clients of one trial.

    Examples
    --------
    >>> threads_for(50_000, 8), threads_for(250_000, 8), threads_for(10**7, 8)
    (1, 2, 8)
    """
    return min(max(num_clients // _CLIENTS_PER_THREAD, 1), threads)


class SharedLearning:
    """Learning of one trial's clients on several threads."""

    def __init__(self, lanes: ClientLanes, data: Stream, threads: int) -> None:
        self._lanes, self._data = lanes, data
        self._pool = ThreadPoolExecutor(threads - 1)
        groups = lanes.models.shape[1] // WIDTH
        bounds = [groups * part // threads * WIDTH for part in range(threads + 1)]
        self._parts = list(pairwise(bounds))
        self._scratch = [make_client_scratch(len(lanes.models), data) for _ in range(threads)]

    def learn(self, n: int, t: int, learns: NDArray[np.uint8] | None) -> float:
        """Let all clients learn in iteration n, number `t` of its chunk, and return the network MSE."""
        futures = [
            self._pool.submit(
                learn_over_clients,
                n, t, *part, self._data, learns, self._lanes._replace(scratch=scratch),
            )
            for part, scratch in zip(self._parts[1:], self._scratch[1:], strict=True)
        ]  # fmt: skip
        first = self._lanes._replace(scratch=self._scratch[0])
        learn_over_clients(n, t, *self._parts[0], self._data, learns, first)
        for future in futures:
            future.result()
        return _mean_square(self._lanes.errors, self._lanes.num_clients)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False)


@compiled(allocates=False)
def learn_over_clients(
    n: int,
    t: int,
    start: int,
    stop: int,
    data: Stream,
    learns: NDArray[np.uint8] | None,
    lanes: ClientLanes,
) -> float:
    """Let the clients from `start` to `stop`, multiples of WIDTH, make the step of iteration n on white samples.

    ``learns`` (T, K, 1) is 1 for those that do, in iteration `t` of the chunk. The sum of their squared errors is
    returned if ``lanes.errors`` has no place for all of them.
    """
    models, errors, num_clients = lanes.models, lanes.errors, lanes.num_clients
    counter, steps, hashed, normals = lanes.scratch
    dimension, padded = models.shape
    words = normals.shape[0] // 2
    for lane in range(WIDTH):
        counter[lane] = data.key[0] + np.uint64((n * num_clients + start + lane) * words) * data.gamma[0]
    # From one vector of clients to the next, less the words that were drawn.
    jump = np.uint64((WIDTH - 1) * words) * data.gamma[0]
    is_summed = errors.size == WIDTH
    total = 0.0
    for k in range(start, stop, WIDTH):
        next_normals(0, counter, steps, hashed, normals)
        store(counter, 0, load(counter, 0) + jump)
        scale = load(lanes.scale, k)
        product = spread(0.0)
        for i in range(dimension):
            x = scale * to_float64(load(normals, i * WIDTH))
            product = fma(x, load(models, i * padded + k), product)
        error = product + load(lanes.deviation, k) * to_float64(load(normals, dimension * WIDTH))
        step = (-1.0 * load(lanes.stepsizes, k)) * error
        if learns is not None:
            step = pick_if_equal(load(learns, t * num_clients + k), spread(np.uint8(1)), step, spread(0.0))
        for i in range(dimension):
            x = scale * to_float64(load(normals, i * WIDTH))
            store(models, i * padded + k, fma(x, step, load(models, i * padded + k)))
        if is_summed:
            store(errors, 0, error)
            for lane in range(min(WIDTH, num_clients - k)):
                total = fma(errors[lane], errors[lane], total)
        else:
            store(errors, k, error)
    return total


@compiled(allocates=False)
def _mean_square(errors: FloatArray, num_clients: int) -> float:
    total = 0.0
    for k in range(num_clients):
        total = fma(errors[k], errors[k], total)
    return 1.0 / num_clients * total
