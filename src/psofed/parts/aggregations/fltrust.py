"""FLTrust: the server learns from a small root set of its own, and trusts updates that point the same way.

The server's own step on its root set is u_0 = μ/N Σ_r x_r (y_r − x_rᵀ w_n). With u_k the update of participant k, and
u_0 taken on the entries that k sent, its trust is t_k = max(0, cos(u_k, u_0)), and its update is brought to the length
of u_0 there. The server moves by

    P'/|S_n| · Σ_k t_k u_k ‖u_0‖/‖u_k‖ / Σ_k t_k

and stays where it is if nobody is trusted. The N = `root_size` samples are drawn once per trial, from a stream of
randomness of their own, as the test set is: white inputs of the test inputs' variance, noise of the fleet's average.
If the target drifts, they stay as they were drawn: what the server knows grows old.

With M = 1 an update has but a sign: those who agree with the server's own step are all brought to exactly that step,
so the clients only vote on whether the server follows its own data.

References
----------
Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021.
"""

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, hook
from psofed.engine.hooks import AGGREGATION
from psofed.engine.normals import fill_standard_normal
from psofed.engine.streams import Stream
from psofed.fleet import draw_fleet
from psofed.parts.aggregations._shared import (
    LARGEST,
    RootData,
    answered_updates,
    gather_updates,
    is_usable,
    move_by_weighted_sum,
)
from psofed.parts.options import Options
from psofed.scenario import Scenario

OPTIONS = {"root_size": {"default": 100, "low": 1, "text": "N: samples of the server's own"}}


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return μ/N, the number of rows, and rows of all lanes, shape (rows, D + 1, lanes), all in one array.

    The rows are Σ_r x_ri [x_r, ν_r] for i = 0 … D − 1, or, where N ≤ D, the samples [x_r, ν_r] themselves.
    """
    if root_stream is None:
        raise NotCoveredError(
            'aggregation "fltrust" needs root data y = wᵀx + ν and uploads that are models; algorithm '
            f'"{scenario.algorithm}" on these data lacks one of them'
        )
    samples = draw_root_samples(scenario, root_stream)
    count, dimension = len(samples), scenario.dimension
    rows = samples
    if count > dimension:
        rows = np.stack([np.einsum("rl,rjl->jl", samples[:, i], samples) for i in range(dimension)])
    return np.concatenate([[scenario.stepsize / count, len(rows), count > dimension], rows.ravel()])


def draw_root_samples(scenario: Scenario, stream: Stream) -> FloatArray:
    """Draw [x_r, ν_r] for r = 0 … N − 1, shape (N, D + 1, lanes)."""
    count, width = int(scenario.aggregation_options["root_size"]), scenario.dimension + 1
    words = (width + 1) // 2
    normals = np.empty((2 * words * count, stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    samples = normals.reshape(count, 2 * words, -1)[:, :width].astype(np.float64)
    samples[:, :-1] *= scenario.data.test_input_variance**0.5
    samples[:, -1] *= draw_fleet(scenario).test_noise_variance ** 0.5
    return samples


def make_root_data(scenario: Scenario, stream: Stream) -> RootData:
    """Return the root set of one trial, for :func:`combine`."""
    samples = draw_root_samples(scenario, stream)[:, :, 0]
    inputs = samples[:, :-1]
    return RootData(inputs, inputs @ draw_fleet(scenario).target + samples[:, -1], scenario.stepsize)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move ``server`` by the trusted updates."""
    updates, _, number = gather_updates(entries, sent, server)
    participants, shared, lanes = sent.shape
    dimension = server.shape[0]
    own = np.zeros(server.shape)
    rows = options[3:].reshape((np.int64(options[1]), dimension + 1, lanes))
    root_step(rows, options[2] > 0, options[0], server, own)
    weights, inner = np.zeros((participants, lanes)), np.zeros(lanes)
    length, own_length = np.zeros(lanes), np.zeros(lanes)
    for p in range(participants):
        inner[:], length[:], own_length[:] = 0.0, 0.0, 0.0
        for m in range(shared):
            for lane in range(lanes):
                if is_usable(sent[p, m, lane]):
                    i = entries[p, m, lane]
                    inner[lane] += updates[p, i, lane] * own[i, lane]
                    length[lane] += updates[p, i, lane] * updates[p, i, lane]
                    own_length[lane] += own[i, lane] * own[i, lane]
        for lane in range(lanes):
            trust = 0.0
            if inner[lane] > 0:
                size, own_size = np.sqrt(length[lane]), np.sqrt(own_length[lane])
                trust = inner[lane] / (size * own_size)
                for i in range(dimension):
                    updates[p, i, lane] *= own_size / size
            weights[p, lane] = trust
    move_by_weighted_sum(updates, weights, number, server)


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    The server's one sample says that entry 0 should grow by 0.5; the second participant says the contrary.

    >>> from psofed.parts.options import make_options
    >>> root = RootData(np.array([[1.0, 0.0]]), np.array([1.0]), stepsize=0.5)
    >>> uploads = np.array([[3.0, np.nan], [-1.0, np.nan]])
    >>> combine(uploads, np.zeros(2), make_options("aggregations", "fltrust", {}, ""), root)
    array([0.5, 0. ])
    """
    if root is None:
        raise NotCoveredError('aggregation "fltrust" needs root data of the server\'s own')
    updates, answered = answered_updates(uploads, server)
    own = root.stepsize * root.inputs.T @ (root.outputs - root.inputs @ server) / len(root.outputs)
    total, trusts = np.zeros_like(server), 0.0
    for update, upload in zip(updates, uploads[answered], strict=True):
        own_here = np.where(np.abs(upload) <= LARGEST, own, 0.0)
        if update @ own_here > 0:
            size, own_size = np.linalg.norm(update), np.linalg.norm(own_here)
            trust = update @ own_here / (size * own_size)
            total += trust * update * own_size / size
            trusts += trust
    return np.asarray(server + answered.mean() * total / trusts) if trusts else server


@compiled
def root_step(rows, is_gram, scale, server, out):
    """Write the change of the server's error by its own step, −μ/N Σ_r x_r (x_rᵀg + ν_r), into ``out`` (D, lanes)."""
    dimension, lanes = server.shape
    error = np.empty(lanes)
    for r in range(rows.shape[0]):
        for lane in range(lanes):
            error[lane] = rows[r, dimension, lane]
        for i in range(dimension):
            for lane in range(lanes):
                error[lane] += rows[r, i, lane] * server[i, lane]
        for lane in range(lanes):
            error[lane] *= scale
        if is_gram:
            for lane in range(lanes):
                out[r, lane] = -error[lane]
        else:
            for i in range(dimension):
                for lane in range(lanes):
                    out[i, lane] -= error[lane] * rows[r, i, lane]
