"""Compiled steps of pairs of clients for given windows, a row of pairs at a time.

At place e the average Y = E[z_k z_l] of a pair before an exchange becomes, after exchange and LMS step,

    both = θ ((1 − s_k)(1 − s_l) Y + s_k s_l E[g'²] + s_k (1 − s_l) C_l + (1 − s_k) s_l C_k + q),
    one  = θ ((1 − s_k) Y + s_k C_l + q),    mirrored = θ ((1 − s_l) Y + s_l C_k + q),    none = θ (Y + q),
    Y'   = E[a_k a_l] both + E[a_k (1 − a_l)] (one + mirrored) + E[(1 − a_k)(1 − a_l)] none,

with C_l = E[g' z_l] (``got.client``), E[g'²] = ``got.server``, q = ``drive.walk`` and θ = decay_k decay_l + swing.
Relabelled, Y' is the Y of place e − M. In a steady state each pair's Y thus goes round a cycle of places on its own,
a linear recursion Y' = f Y + … that closes: Y = (…)/(1 − Π f). 1/(1 − Π f) depends on masks alone and is computed
beforehand (:func:`close_cycles`). Pairs act back through the sums w and h of :class:`~.arguments.WindowMoments`.

Every function works on one client k and all clients l. The mask of k is then one number, and the loops over l run on
whole registers, which is why each of them writes a single array. Pair by pair the same takes many times as long.
Pairs with l = k do not exist: their numbers are computed, and dropped where they would be counted.
"""

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled
from psofed.theory.maps.windows.arguments import PairRow, PairStep, WindowDrive, WindowMoments, WindowSystem


@compiled(by_content=True)
def eliminated_sums(step: PairStep, closed: FloatArray, row: PairRow, out: WindowMoments) -> None:
    """Fill the sums over pairs in a steady state: each pair's cycle is closed on its own."""
    system, (dimension, clients) = step.system, step.mask.shape
    clear_sums(row, out)
    cycles = closed.shape[0]
    for k in range(clients):
        for start in range(cycles):
            # Place c before relabelling feeds the exchange at c − M. Once round from 0 gives (…), twice the answer.
            for l in range(clients):  # noqa: E741
                row.value[l] = 0.0
            e = start
            for _ in range(dimension // cycles):
                e = (e - system.shift) % dimension
                average_row(k, e, step, row)
            factor = closed[start, k]
            for l in range(clients):  # noqa: E741
                row.value[l] *= factor[l]
            for _ in range(dimension // cycles):
                e = (e - system.shift) % dimension
                step_and_count(k, e, step, row, out)
    finish_sums(step.mask, system, row, out)


@compiled(by_content=True)
def stepped_sums(
    pairs: FloatArray, step: PairStep, row: PairRow, new_pairs: FloatArray, out: WindowMoments
) -> None:
    """Step all pairs, (K, D, K) for k < l, through one iteration (`new_pairs`), and fill the sums over them."""
    dimension, clients = step.mask.shape
    clear_sums(row, out)
    for k in range(clients):
        for e in range(dimension):
            c = (e + step.system.shift) % dimension
            for l in range(clients):  # noqa: E741
                row.value[l] = pairs[k, c, l] if l > k else pairs[l, c, k]
            step_and_count(k, e, step, row, out)
            for l in range(clients):  # noqa: E741
                new_pairs[k, e, l] = row.value[l] if l > k else 0.0
    finish_sums(step.mask, step.system, row, out)


@compiled(by_content=True)
def close_cycles(mask: FloatArray, system: WindowSystem, out: FloatArray) -> None:
    """Fill 1/(1 − Π f) of every pair and cycle of places, (cycles, K, K)."""
    dimension, clients = mask.shape
    for start in range(out.shape[0]):
        for k in range(clients):
            for l in range(clients):  # noqa: E741
                theta, factor, e = system.decay[k] * system.decay[l] + system.swing, 1.0, start
                for _ in range(dimension // out.shape[0]):
                    e = (e - system.shift) % dimension
                    if mask[e, k] > 0.0:
                        factor *= theta * (system.only * (1.0 - mask[e, l]) + system.neither)
                    else:
                        factor *= theta * (1.0 - system.single * mask[e, l])
                out[start, k, l] = 1.0 / (1.0 - factor)


@compiled(by_content=True)
def step_and_count(k: int, e: int, step: PairStep, row: PairRow, out: WindowMoments) -> None:
    """Take `row.value` of client k through exchange and LMS step at place e, and count what k then uploads.

    Adds to w_l and to `row.uploads` for every l.
    """
    system, (dimension, clients) = step.system, step.mask.shape
    n = (e - system.shift) % dimension
    counts = step.mask[n, k] > 0.0
    if counts and not system.redrawn:
        upload_row(k, e, step, row)
    average_row(k, e, step, row)
    if not counts:
        return
    # All clients are alike where the attack's set is redrawn, and their factor is multiplied in the end.
    own, sums, sent = system.own[k], out.sums[n], row.uploads[n]
    alike = 1.0 if system.covariance != 0.0 else own
    kept_sum, kept_sent = sums[k], sent[k]
    if system.redrawn:
        for l in range(clients):  # noqa: E741
            sums[l] += own * system.single * row.value[l]
        for l in range(clients):  # noqa: E741
            sent[l] += alike * row.value[l]
    else:
        for l in range(clients):  # noqa: E741
            sums[l] += own * (system.pair * row.both[l] + system.only * row.one[l])
        for l in range(clients):  # noqa: E741
            sent[l] += alike * row.both[l]
    sums[k], sent[k] = kept_sum, kept_sent


@compiled(by_content=True)
def average_row(k: int, e: int, step: PairStep, row: PairRow) -> None:
    """Replace `row.value`, Y of client k with all l, by Y' at place e."""
    mask, system, drive, first, got = step
    clients = mask.shape[1]
    value, shared, client, decay = row.value, mask[e], got.client[e], system.decay
    pair, only, neither, p = system.pair, system.only, system.neither, system.single
    swing, walk = system.swing, drive.walk
    server, client_k, decay_k = got.server[e], got.client[e, k], system.decay[k]
    if mask[e, k] > 0.0:
        for l in range(clients):  # noqa: E741
            s = shared[l]
            both = (1.0 - s) * client[l] + s * server
            mirrored = (1.0 - s) * value[l] + s * client_k
            average = pair * both + only * (client[l] + mirrored) + neither * value[l]
            value[l] = (decay_k * decay[l] + swing) * (average + walk)
    else:
        for l in range(clients):  # noqa: E741
            s = shared[l]
            average = (1.0 - p * s) * value[l] + p * s * client_k
            value[l] = (decay_k * decay[l] + swing) * (average + walk)
    if drive.directed:
        taking_k, idle_k = first[1 + k, e], first[1 + clients + k, e]
        for l in range(clients):  # noqa: E741
            taking_l, idle_l = first[1 + l, e], first[1 + clients + l, e]
            one = pair_push(k, l, taking_k, idle_l, system, drive)
            mirrored = pair_push(k, l, idle_k, taking_l, system, drive)
            value[l] += pair * pair_push(k, l, taking_k, taking_l, system, drive) + only * (one + mirrored)
            value[l] += neither * pair_push(k, l, idle_k, idle_l, system, drive)


@compiled(by_content=True)
def upload_row(k: int, e: int, step: PairStep, row: PairRow) -> None:
    """Fill `row.both` and `row.one` of client k with all l from `row.value` at place e."""
    mask, system, drive, first, got = step
    clients = mask.shape[1]
    value, both, one = row.value, row.both, row.one
    shared, client, decay = mask[e], got.client[e], system.decay
    server, client_k, decay_k = got.server[e], got.client[e, k], system.decay[k]
    swing, walk = system.swing, drive.walk
    if mask[e, k] > 0.0:
        for l in range(clients):  # noqa: E741
            s = shared[l]
            both[l] = (decay_k * decay[l] + swing) * ((1.0 - s) * client[l] + s * server + walk)
        for l in range(clients):  # noqa: E741
            one[l] = (decay_k * decay[l] + swing) * (client[l] + walk)
    else:
        for l in range(clients):  # noqa: E741
            s = shared[l]
            both[l] = (decay_k * decay[l] + swing) * ((1.0 - s) * value[l] + s * client_k + walk)
        for l in range(clients):  # noqa: E741
            one[l] = (decay_k * decay[l] + swing) * (value[l] + walk)
    if drive.directed:
        for l in range(clients):  # noqa: E741
            taking_l, idle_l = first[1 + l, e], first[1 + clients + l, e]
            both[l] += pair_push(k, l, first[1 + k, e], taking_l, system, drive)
            one[l] += pair_push(k, l, first[1 + k, e], idle_l, system, drive)


@compiled(by_content=True)
def pair_push(
    k: int,
    l: int,  # noqa: E741
    x: FloatArray,
    y: FloatArray,
    system: WindowSystem,
    drive: WindowDrive,
) -> float:
    """Return what displaced targets add to E[z_k z_l], from first moments x of k and y of l (V,) before the step."""
    total = 0.0
    for v in range(x.size):
        kept_k, kept_l = system.decay[k] * x[v], system.decay[l] * y[v]
        push_k, push_l = drive.push[0, k, v], drive.push[0, l, v]
        total += kept_k * push_l + push_k * (kept_l + push_l)
        if drive.push_covariance != 0.0:
            kept_k, kept_l = drive.push_swing[k] * x[v], drive.push_swing[l] * y[v]
            push_k, push_l = drive.push[1, k, v], drive.push[1, l, v]
            total += drive.push_covariance * (kept_k * push_l + push_k * (kept_l + push_l))
    return total / x.size


@compiled(by_content=True)
def clear_sums(row: PairRow, out: WindowMoments) -> None:
    """Set the sums over pairs to zero."""
    dimension, clients = out.sums.shape
    for n in range(dimension):
        out.together[n] = 0.0
        for l in range(clients):  # noqa: E741
            out.sums[n, l] = row.uploads[n, l] = 0.0


@compiled(by_content=True)
def finish_sums(mask: FloatArray, system: WindowSystem, row: PairRow, out: WindowMoments) -> None:
    """Fill h from the sums of uploads."""
    swing = system.covariance * (system.affine_own - 1.0) ** 2
    for n in range(mask.shape[0]):
        for l in range(mask.shape[1]):  # noqa: E741
            factor = system.own[l]
            if system.covariance != 0.0:
                factor = factor * factor + swing
            out.together[n] += system.pair * mask[n, l] * factor * row.uploads[n, l]
