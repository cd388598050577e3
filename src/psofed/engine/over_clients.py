"""LMS steps of one trial with lanes over clients, for fleets that are simulated less often than there are lanes.

Models lie as an array (D, K), so entry i of WIDTH neighbouring clients is one vector; seen as (K, D, 1), other kernels
take it as the models of one trial. Every operation, and the order of the sum over clients, is that of lanes over
trials, so the bits are the same. Squared errors are summed over blocks of SUM_BLOCK clients, then over blocks, so that
threads can each take some.
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

# Clients whose squared errors are summed before they are added to the others'.
SUM_BLOCK = 1 << 16

# Fewer clients than this are not worth waking a thread for.
_CLIENTS_PER_THREAD = 100_000


class ClientScratch(NamedTuple):
    """Scratch of one thread, as in :class:`psofed.engine.pso_fed_state.Scratch`; `steps` is the stream's increment."""

    counter: WordArray
    steps: WordArray
    hashed: WordArray
    normals: NDArray[np.float32]
    errors: FloatArray


class ClientLanes(NamedTuple):
    """Clients of one trial, which are the lanes; K is padded to a multiple of WIDTH by clients that never change.

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
    sums : array (blocks,)
        Sums of squared prediction errors over blocks of SUM_BLOCK clients.
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
    sums: FloatArray
    server: FloatArray
    measured: FloatArray
    scratch: ClientScratch


def make_client_lanes(
    inputs: InputModel, stepsizes: FloatArray, target: FloatArray, data: Stream
) -> ClientLanes:
    """Return the lanes of one trial, all models zero."""
    num_clients, dimension = inputs.scale.size, target.size
    padded = -(-num_clients // WIDTH) * WIDTH
    columns = empty_lanes(3, padded)
    columns[:, :num_clients] = inputs.scale, inputs.noise_deviation, stepsizes
    columns[:, num_clients:] = 0.0
    models = empty_lanes(dimension, padded)
    models[:] = target[:, None]
    return ClientLanes(
        WHOLE, 0, 0, num_clients, models, columns[0], columns[1], columns[2],
        sums=np.zeros(-(-num_clients // SUM_BLOCK)),
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
        empty_lanes(WIDTH),
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
        blocks, padded = lanes.sums.size, lanes.models.shape[1]
        bounds = [min(blocks * part // threads * SUM_BLOCK, padded) for part in range(threads)] + [padded]
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
        total = 0.0
        for part in self._lanes.sums.tolist():  # in the order of their clients
            total += part
        return 1.0 / self._lanes.num_clients * total

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
) -> None:
    """Let the clients from `start` to `stop` make the step of iteration n on white samples, and fill ``lanes.sums``.

    `start` is a multiple of SUM_BLOCK and `stop` of WIDTH. ``learns`` (T, K, 1) is 1 for those that learn, in iteration
    `t` of the chunk.
    """
    models, num_clients = lanes.models, lanes.num_clients
    counter, steps, hashed, normals, errors = lanes.scratch
    dimension, padded = models.shape
    words = normals.shape[0] // 2
    for lane in range(WIDTH):
        number = n * num_clients + start + lane
        counter[lane] = data.key[0] + np.uint64(number * words) * data.gamma[0]
    # From one vector of clients to the next, less the words that were drawn.
    jump = np.uint64((WIDTH - 1) * words) * data.gamma[0]
    for block in range(start, stop, SUM_BLOCK):
        total = 0.0
        for k in range(block, min(block + SUM_BLOCK, stop), WIDTH):
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
                step = pick_if_equal(
                    load(learns, t * num_clients + k), spread(np.uint8(1)), step, spread(0.0)
                )
            for i in range(dimension):
                x = scale * to_float64(load(normals, i * WIDTH))
                store(models, i * padded + k, fma(x, step, load(models, i * padded + k)))
            store(errors, 0, error)
            for lane in range(min(WIDTH, num_clients - k)):
                total = fma(errors[lane], errors[lane], total)
        lanes.sums[block // SUM_BLOCK] = total
