"""Compiled iterations of all moments for given windows: with pairs eliminated, in full, and repeated for a curve.

Reduced: x = (g, cross, own, w, h), D (5K + 2) numbers, go through LMS step and exchange of server and clients, then
the sums over pairs of the steady state that belongs to them (:func:`~.pairs.eliminated_sums`). Full: the pairs
themselves are part of x, so that the map takes covariances to covariances and its spectral radius is an eigenvalue.
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled
from psofed.theory.maps.windows.arguments import (
    PairGains,
    PairRow,
    PairStep,
    WindowDrive,
    WindowMoments,
    WindowSystem,
)
from psofed.theory.maps.windows.clients import exchange_clients, lms_clients, mean_product, step_first
from psofed.theory.maps.windows.pairs import (
    clear_sums,
    eliminated_sums,
    finish_sums,
    pair_push,
    stepped_sums,
)


@compiled(by_content=True)
def unpacked(x: FloatArray, dimension: int, clients: int) -> WindowMoments:
    """Return views of the packed unknowns, D (5K + 2) numbers."""
    block, shape = dimension * clients, (dimension, clients)
    a = dimension
    return WindowMoments(
        x[:a],
        x[a : a + block].reshape(shape),
        x[a + block : a + 2 * block].reshape(shape),
        x[a + 2 * block : a + 3 * block].reshape(shape),
        x[a + 3 * block : a + 4 * block].reshape(shape),
        x[a + 4 * block : a + 5 * block].reshape(shape),
        x[a + 5 * block : 2 * a + 5 * block],
    )


@compiled(by_content=True)
def reduced_steps(
    x: FloatArray,
    masks: FloatArray,
    system: WindowSystem,
    drive: WindowDrive,
    firsts: FloatArray,
    befores: FloatArray,
    closed: FloatArray,
    out: FloatArray,
) -> None:
    """One iteration with pairs eliminated, for N sets of masks (N, D, K) and unknowns (N, D (5K + 2)).

    `firsts` and `befores` are first moments after the download and before the upload, (N, 2K + 1, D, V), and `closed`
    the closed cycles of every set, (N, cycles, K, K).
    """
    count, dimension, clients = masks.shape
    z, row = unpacked(np.empty(x.shape[1]), dimension, clients), _new_row(dimension, clients)
    got = PairGains(np.empty((dimension, clients)), np.empty(dimension))
    for i in range(count):
        v, new = unpacked(x[i], dimension, clients), unpacked(out[i], dimension, clients)
        _exchange(v, z, masks[i], system, drive, firsts[i], befores[i], got, new)
        eliminated_sums(PairStep(masks[i], system, drive, firsts[i], got), closed[i], row, new)


@compiled(by_content=True)
def full_step(
    x: FloatArray,
    mask: FloatArray,
    system: WindowSystem,
    drive: WindowDrive,
    first: FloatArray,
    before: FloatArray,
    following: FloatArray,
    out: FloatArray,
) -> None:
    """One iteration of all moments: x is the packed unknowns, then the pairs (K, D, K) for k < l.

    `first`, `before` and `following` are first moments after this download, before the upload and after the next
    download; the LMS step of the pairs, which comes last, meets the latter.
    """
    dimension, clients = mask.shape
    split = dimension * (2 + 5 * clients)
    z = unpacked(np.empty(split), dimension, clients)
    got = PairGains(np.empty((dimension, clients)), np.empty(dimension))
    new, shape = unpacked(out[:split], dimension, clients), (clients, dimension, clients)
    _exchange(unpacked(x[:split], dimension, clients), z, mask, system, drive, first, before, got, new)
    pairs, new_pairs = x[split:].reshape(shape), out[split:].reshape(shape)
    row = _new_row(dimension, clients)
    stepped_sums(pairs, PairStep(mask, system, drive, following, got), row, new_pairs, new)


@compiled(by_content=True)
def curves(
    masks: FloatArray,
    system: WindowSystem,
    drive: WindowDrive,
    start: FloatArray,
    variance: FloatArray,
    offsets: FloatArray,
    out: FloatArray,
) -> None:
    """Excess and MSD over the iterations for each set of masks, (N, 2, n); all begin at first moments `start` (V,)."""
    count, dimension, clients = masks.shape
    split = dimension * (2 + 5 * clients)
    size = split + clients * dimension * clients
    x, new = np.empty(size), np.zeros(size)
    first = np.empty((2 * clients + 1, dimension, start.size))
    before, following = np.empty_like(first), np.empty_like(first)
    for i in range(count):
        for j in range(2 * clients + 1):
            for e in range(dimension):
                for v in range(start.size):
                    first[j, e, v] = start[v]
        _start(x, masks[i], system, drive, start, _new_row(dimension, clients))
        for n in range(out.shape[2]):
            moments = unpacked(x[:split], dimension, clients)
            out[i, 0, n], out[i, 1, n] = level(moments, first, variance, offsets, system)
            _copy(first, following)
            if drive.directed:
                step_first(following, masks[i], system, drive, before)
            full_step(x, masks[i], system, drive, first, before, following, new)
            _copy(following, first)
            x, new = new, x


@compiled(by_content=True)
def level(
    v: WindowMoments, first: FloatArray, variance: FloatArray, offsets: FloatArray, system: WindowSystem
) -> tuple[float, float]:
    """Excess network MSE, on inputs of variances (K,) and targets displaced by `offsets` (K, V), and server MSD."""
    dimension, clients = v.own1.shape
    p, excess, msd = system.single, 0.0, 0.0
    for k in range(clients):
        seen = 0.0
        for c in range(dimension):
            seen += p * v.own1[c, k] + (1 - p) * v.own0[c, k]
            if offsets.size:
                mixed = p * mean_product(first[1 + k, c], offsets[k])
                mixed += (1 - p) * mean_product(first[1 + clients + k, c], offsets[k])
                seen += 2.0 * mixed + mean_product(offsets[k], offsets[k])
        excess += variance[k] * seen
    for c in range(dimension):
        msd += v.server[c]
    return excess / clients, msd


@compiled(by_content=True)
def _exchange(
    v: WindowMoments,
    z: WindowMoments,
    mask: FloatArray,
    system: WindowSystem,
    drive: WindowDrive,
    first: FloatArray,
    before: FloatArray,
    got: PairGains,
    out: WindowMoments,
) -> None:
    """LMS step, upload and download of server and clients; `z` is working memory."""
    lms_clients(v, system, drive, first, z)
    z = WindowMoments(z.server, z.cross1, z.cross0, z.own1, z.own0, v.sums, v.together)
    exchange_clients(z, mask, system, drive, before, got, out)


@compiled(by_content=True)
def _start(
    x: FloatArray,
    mask: FloatArray,
    system: WindowSystem,
    drive: WindowDrive,
    start: FloatArray,
    row: PairRow,
) -> None:
    """Fill the state where all models are zero: all moments are those of the target, pairs after their LMS step."""
    dimension, clients = mask.shape
    split = dimension * (2 + 5 * clients)
    square = mean_product(start, start)
    for j in range(x.size):
        x[j] = square
    v, pairs = unpacked(x[:split], dimension, clients), x[split:].reshape((clients, dimension, clients))
    clear_sums(row, v)
    for k in range(clients):
        own = system.own[k]
        alike = 1.0 if system.covariance != 0.0 else own
        for l in range(clients):  # noqa: E741
            value = (system.decay[k] * system.decay[l] + system.swing) * square
            if drive.directed:
                value += pair_push(k, l, start, start, system, drive)
            for e in range(dimension):
                pairs[k, e, l] = value if l > k else 0.0
                if l != k:
                    v.sums[e, l] += mask[e, k] * own * system.single * value
                    row.uploads[e, l] += mask[e, k] * alike * value
    finish_sums(mask, system, row, v)


@compiled(by_content=True)
def _new_row(dimension: int, clients: int) -> PairRow:
    """Return scratch for a row of pairs."""
    uploads = np.zeros((dimension, clients))
    return PairRow(np.zeros(clients), np.zeros(clients), np.zeros(clients), uploads)


@compiled(by_content=True)
def _copy(source: FloatArray, out: FloatArray) -> None:
    """Copy, number by number: `out[:] = source` would compile the text of an error, which takes seconds."""
    for j in range(source.shape[0]):
        for e in range(source.shape[1]):
            for v in range(source.shape[2]):
                out[j, e, v] = source[j, e, v]
