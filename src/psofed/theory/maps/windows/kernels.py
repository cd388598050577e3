"""The compiled recursions of :mod:`psofed.theory.window_problem`: moments of given windows, entry by entry.

Entries are labelled by their place c relative to the moving frame, in which client k's mask is always
s_k(c) = 1 if (c − o_k) mod D < M, and every iteration relabels c + M as c. With white inputs all moments at place c are
numbers, and first moments are V numbers (:class:`psofed.theory.moments.Entries`).

The packed unknowns of one solve, for K clients and D entries, are g (D), cross1, cross0, own1, own0 (K, D each), and,
before the upload and already relabelled, w_l = Σ_{m≠l} s_m E[b_m A_m z_m z_l] (K, D) and
h = Σ_{k≠l} s_k s_l E[b_k b_l A_k A_l z_k z_l] (D).

All of them stand in one file, with the tuples they are given, though it is long: Numba keeps compiled code by the file
that a function stands in, so a change in another file that it calls would meet stale code
(:mod:`psofed.engine.compiling`).
"""

from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled

_RESTART = 60
_TOLERANCE = 1e-8


class System(NamedTuple):
    """The part of the map that is linear in the moments, at one stepsize.

    Attributes
    ----------
    probabilities : array (4,)
        p_c, E[a_k a_l], E[a_k (1 − a_l)], E[(1 − a_k)(1 − a_l)].
    participants, shift : int
        |S_n| and M.
    redrawn : bool
        Whether the uploading participants are redrawn.
    decay, keep, trace : array (K,)
        LMS: means become `decay` v, own moments `keep` P + `trace` tr P.
    swing : float
        What is added to decay_k decay_l for a pair.
    own, server, chance : array (K,)
        E[A_k], E[G_k] and E[t_k] of the uploads.
    affine_own, affine_server, covariance : float
        Factors of an attacked upload, and Cov(t_k, t_l).
    """

    probabilities: FloatArray
    participants: int
    shift: int
    redrawn: bool
    decay: FloatArray
    keep: FloatArray
    trace: FloatArray
    swing: float
    own: FloatArray
    server: FloatArray
    chance: FloatArray
    affine_own: float
    affine_server: float
    covariance: float


class Drive(NamedTuple):
    """The part of the map that does not depend on the moments.

    Attributes
    ----------
    noise : array (K,)
        Added to every own moment by the LMS step.
    variance, common : float
        What attackers add to an entry: its variance, and E[δδ] of two attackers over E[t_k] E[t_l].
    walk : float
        q of a target that walks.
    directed : bool
        Whether the rest is there: it needs first moments.
    constant : array (V,)
        c of the uploads.
    weight, scaled : array (B, K)
        Probability, and μς², of the kinds of samples a client learns from.
    displacement : array (B, K, V)
        e of each kind of samples.
    push : array (2, K, V)
        −μ E[R e], and −μ times what R e of poisoned and clean samples differ by.
    push_swing : array (K,)
        −μ times what R of poisoned and clean samples differ by.
    push_covariance : float
        Cov(t_k, t_l) of clients that poison their samples.
    """

    noise: FloatArray
    variance: float
    common: float
    walk: float
    directed: bool
    constant: FloatArray
    weight: FloatArray
    scaled: FloatArray
    displacement: FloatArray
    push: FloatArray
    push_swing: FloatArray
    push_covariance: float


@compiled
def packed_size(clients: int, dimension: int) -> int:
    """Length of the packed unknowns."""
    return dimension * (2 + 5 * clients)


@compiled
def step_first(first: FloatArray, s: FloatArray, system: System, drive: Drive, before: FloatArray) -> None:
    """Fill the first moments before the upload (`before`), then move `first` to after the next download.

    Both are (2K + 1, D, V): the server, clients that have downloaded, clients that have not.
    """
    clients, dimension = s.shape
    p, kinds = system.probabilities[0], first.shape[2]
    for c in range(dimension):
        e = (c + system.shift) % dimension
        for v in range(kinds):
            before[0, c, v] = first[0, e, v]
            for k in range(clients):
                push = drive.push[0, k, v]
                taking = system.decay[k] * first[1 + k, e, v] + push
                idle = system.decay[k] * first[1 + clients + k, e, v] + push
                if system.redrawn:
                    taking = idle = p * taking + (1 - p) * idle
                before[1 + k, c, v] = taking
                before[1 + clients + k, c, v] = idle
    for c in range(dimension):
        for v in range(kinds):
            g = before[0, c, v]
            total = 0.0
            for k in range(clients):
                if s[k, c] > 0.0:
                    sent = system.own[k] * before[1 + k, c, v] + system.server[k] * g
                    total += p * (sent + system.chance[k] * drive.constant[v] - g)
            g += total / system.participants
            first[0, c, v] = g
            for k in range(clients):
                kept = p * before[1 + k, c, v] + (1 - p) * before[1 + clients + k, c, v]
                first[1 + k, c, v] = g if s[k, c] > 0.0 else kept
                first[1 + clients + k, c, v] = kept


@compiled
def _mean_product(x: FloatArray, y: FloatArray) -> float:
    total = 0.0
    for v in range(x.size):
        total += x[v] * y[v]
    return total / x.size


@compiled
def exchange_clients(
    z: FloatArray,
    w: FloatArray,
    h: FloatArray,
    s: FloatArray,
    system: System,
    drive: Drive,
    before: FloatArray,
    client: FloatArray,
    server: FloatArray,
    out: FloatArray,
) -> None:
    """Fill E[g' z_l] (client), E[g'²] (server) and the clients' moments after the next download (out)."""
    clients, dimension = s.shape
    p, pair, first_only = system.probabilities[0], system.probabilities[1], system.probabilities[2]
    alpha, gamma, count = system.affine_own, system.affine_server, system.participants
    for c in range(dimension):
        g = z[0, 0, c]
        constant2 = constant_server = 0.0
        if drive.directed:
            constant2 = _mean_product(drive.constant, drive.constant)
            constant_server = _mean_product(drive.constant, before[0, c])
        total, second = g, h[c]
        # Sums over those who share place c of the factors of z, g and c, for the means and for what swings with t
        n = a_z = a_m = sum_g = sum_t = 0.0
        same = swing_z = swing_m = 0.0
        for k in range(clients):
            if s[k, c] == 0.0:
                continue
            a, rest, t = system.own[k], system.server[k] - 1.0, system.chance[k]
            cross1, own1, mean = z[1, k, c], z[3, k, c], 0.0
            if drive.directed:
                mean = _mean_product(drive.constant, before[1 + k, c])
            to_server = p * (a * cross1 + system.server[k] * g + t * constant_server)
            upload = (1.0 + t * (alpha * alpha - 1.0)) * own1 + 2.0 * t * alpha * gamma * cross1
            upload += t * gamma * gamma * g + t * drive.variance
            upload += t * (2.0 * alpha * mean + 2.0 * gamma * constant_server + constant2)
            total += 2.0 * (to_server - p * g) / count
            second += p * upload - 2.0 * to_server + p * g
            n += 1.0
            a_z += a * cross1
            a_m += a * mean
            sum_g += rest
            sum_t += t
            same += 2.0 * a * rest * cross1 + rest * rest * g + 2.0 * a * t * mean
            same += 2.0 * rest * t * constant_server + t * t * (constant2 + drive.common)
            swing_z += cross1
            swing_m += mean
        others = 2.0 * a_z * sum_g + sum_g * sum_g * g + 2.0 * a_m * sum_t
        others += 2.0 * sum_g * sum_t * constant_server + sum_t * sum_t * (constant2 + drive.common) - same
        if system.covariance != 0.0:
            b = alpha - 1.0
            part = 2.0 * b * gamma * swing_z * (n - 1.0) + 2.0 * b * swing_m * (n - 1.0)
            part += (gamma * gamma * g + 2.0 * gamma * constant_server + constant2) * n * (n - 1.0)
            others += system.covariance * part
        server[c] = total + (second + pair * others) / count**2
        out[0, 0, c] = server[c] + drive.walk
        for k in range(clients):
            cross1, cross0, own1 = z[1, k, c], z[2, k, c], z[3, k, c]
            cross_other = pair * cross1 + first_only * cross0
            value = w[k, c]
            rest, t = system.server[k] - 1.0, system.chance[k]
            value += (sum_g - s[k, c] * rest) * cross_other
            mean1 = mean0 = 0.0
            if drive.directed:
                mean1 = _mean_product(drive.constant, before[1 + k, c])
                mean0 = _mean_product(drive.constant, before[1 + clients + k, c])
                value += (sum_t - s[k, c] * t) * (pair * mean1 + first_only * mean0)
            value += s[k, c] * p * (system.own[k] * own1 + rest * cross1 + t * mean1)
            client[k, c] = p * cross1 + (1 - p) * cross0 + value / count
            own = p * own1 + (1 - p) * z[4, k, c]
            out[1, k, c] = (server[c] if s[k, c] > 0.0 else client[k, c]) + drive.walk
            out[2, k, c] = client[k, c] + drive.walk
            out[3, k, c] = (server[c] if s[k, c] > 0.0 else own) + drive.walk
            out[4, k, c] = own + drive.walk


@compiled
def lms_clients(v: FloatArray, system: System, drive: Drive, first: FloatArray, z: FloatArray) -> None:
    """LMS step of server and clients, mixing if the upload set is redrawn, then relabelling."""
    clients, dimension = v.shape[1], v.shape[2]
    p, shift = system.probabilities[0], system.shift
    for c in range(dimension):
        z[0, 0, c] = v[0, 0, (c + shift) % dimension]
    for k in range(clients):
        trace1 = trace0 = 0.0
        for c in range(dimension):
            trace1 += v[3, k, c]
            trace0 += v[4, k, c]
        added1 = system.trace[k] * trace1 + drive.noise[k]
        added0 = system.trace[k] * trace0 + drive.noise[k]
        if drive.directed:
            for b in range(drive.weight.shape[0]):
                for c in range(dimension):
                    square = _mean_product(drive.displacement[b, k], drive.displacement[b, k])
                    factor = drive.weight[b, k] * drive.scaled[b, k] ** 2
                    mixed = _mean_product(first[1 + k, c], drive.displacement[b, k])
                    added1 += factor * (2.0 * mixed + square)
                    mixed = _mean_product(first[1 + clients + k, c], drive.displacement[b, k])
                    added0 += factor * (2.0 * mixed + square)
        for c in range(dimension):
            e = (c + shift) % dimension
            cross1, cross0 = system.decay[k] * v[1, k, e], system.decay[k] * v[2, k, e]
            own1 = system.keep[k] * v[3, k, e] + added1
            own0 = system.keep[k] * v[4, k, e] + added0
            if drive.directed:
                shifted = _mean_product(first[0, e], drive.push[0, k])
                cross1 += shifted
                cross0 += shifted
                for b in range(drive.weight.shape[0]):
                    a, weight = drive.scaled[b, k], drive.weight[b, k]
                    square = _mean_product(drive.displacement[b, k], drive.displacement[b, k])
                    mixed = _mean_product(first[1 + k, e], drive.displacement[b, k])
                    own1 += weight * (2.0 * a * a * (2.0 * mixed + square) - 2.0 * a * mixed)
                    mixed = _mean_product(first[1 + clients + k, e], drive.displacement[b, k])
                    own0 += weight * (2.0 * a * a * (2.0 * mixed + square) - 2.0 * a * mixed)
            if system.redrawn:
                cross1 = cross0 = p * cross1 + (1 - p) * cross0
                own1 = own0 = p * own1 + (1 - p) * own0
            z[1, k, c], z[2, k, c], z[3, k, c], z[4, k, c] = cross1, cross0, own1, own0


@compiled
def _pair_push(k: int, l: int, x: FloatArray, y: FloatArray, system: System, drive: Drive) -> float:  # noqa: E741
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


@compiled
def _pair_after(
    value: float,
    k: int,
    l: int,  # noqa: E741
    e: int,
    client: FloatArray,
    server: FloatArray,
    s: FloatArray,
    system: System,
    drive: Drive,
    first: FloatArray,
    theta: float,
    out: FloatArray,
) -> None:
    """Exchange, then LMS step, of one pair at place e; `out` gets both, one, its mirror image and the average."""
    clients = s.shape[0]
    _, pair, only, neither = system.probabilities
    kept_k, kept_l, walk = 1.0 - s[k, e], 1.0 - s[l, e], drive.walk
    both, one, mirrored = kept_k * kept_l * value, kept_k * value, kept_l * value
    if s[k, e] > 0.0:
        one += client[l, e]
        both += server[e] if s[l, e] > 0.0 else client[l, e]
    elif s[l, e] > 0.0:
        both += client[k, e]
    if s[l, e] > 0.0:
        mirrored += client[k, e]
    both, one = theta * (both + walk), theta * (one + walk)
    mirrored, none = theta * (mirrored + walk), theta * (value + walk)
    if drive.directed:
        taking_k, idle_k = first[1 + k, e], first[1 + clients + k, e]
        taking_l, idle_l = first[1 + l, e], first[1 + clients + l, e]
        both += _pair_push(k, l, taking_k, taking_l, system, drive)
        one += _pair_push(k, l, taking_k, idle_l, system, drive)
        mirrored += _pair_push(k, l, idle_k, taking_l, system, drive)
        none += _pair_push(k, l, idle_k, idle_l, system, drive)
    out[0], out[1], out[2] = both, one, mirrored
    out[3] = pair * both + only * (one + mirrored) + neither * none


@compiled
def _count_pair(
    found: FloatArray,
    k: int,
    l: int,  # noqa: E741
    n: int,
    s: FloatArray,
    system: System,
    w: FloatArray,
    h: FloatArray,
) -> None:
    """Add one pair's moments before the upload at place n to the sums."""
    p, pair, only, _ = system.probabilities
    own_k, own_l = system.own[k], system.own[l]
    together = own_k * own_l + system.covariance * (system.affine_own - 1.0) ** 2
    if system.redrawn:
        w[l, n] += s[k, n] * own_k * p * found[3]
        w[k, n] += s[l, n] * own_l * p * found[3]
        h[n] += 2.0 * s[k, n] * s[l, n] * together * pair * found[3]
    else:
        w[l, n] += s[k, n] * own_k * (pair * found[0] + only * found[1])
        w[k, n] += s[l, n] * own_l * (pair * found[0] + only * found[2])
        h[n] += 2.0 * s[k, n] * s[l, n] * together * pair * found[0]


@compiled
def _eliminated_sums(
    client: FloatArray,
    server: FloatArray,
    s: FloatArray,
    system: System,
    drive: Drive,
    first: FloatArray,
    eigenvalue: float,
    w: FloatArray,
    h: FloatArray,
) -> None:
    """Sum over pairs in a steady state: each pair's cycle through the entries is solved on its own."""
    clients, dimension = s.shape
    w[:] = 0.0
    h[:] = 0.0
    shift = system.shift
    a, b = dimension, shift
    while b:
        a, b = b, a % b
    orbits, cycles = a, dimension // a
    found = np.empty(4)
    _, pair, only, neither = system.probabilities
    for k in range(clients):
        for l in range(k + 1, clients):  # noqa: E741
            theta = (system.decay[k] * system.decay[l] + system.swing) / eigenvalue
            for start in range(orbits):
                # What place c holds before relabelling the exchange at c − shift sees; once round closes the cycle.
                value, factor, c = 0.0, 1.0, start
                for _ in range(cycles):
                    e = (c - shift) % dimension
                    _pair_after(value, k, l, e, client, server, s, system, drive, first, theta, found)
                    kept_k, kept_l = 1.0 - s[k, e], 1.0 - s[l, e]
                    factor *= theta * (pair * kept_k * kept_l + only * (kept_k + kept_l) + neither)
                    value, c = found[3], e
                value /= 1.0 - factor
                for _ in range(cycles):
                    e = (c - shift) % dimension
                    _pair_after(value, k, l, e, client, server, s, system, drive, first, theta, found)
                    _count_pair(found, k, l, (e - shift) % dimension, s, system, w, h)
                    value, c = found[3], e


@compiled
def reduced_step(
    x: FloatArray,
    s: FloatArray,
    system: System,
    drive: Drive,
    first: FloatArray,
    before: FloatArray,
    eigenvalue: float,
    out: FloatArray,
) -> None:
    """One iteration on the packed unknowns: server and clients divided by λ, then the sums over pairs."""
    clients, dimension = s.shape
    block = dimension * clients
    v, z = np.zeros((5, clients, dimension)), np.zeros((5, clients, dimension))
    client, server = np.empty((clients, dimension)), np.empty(dimension)
    # Loops, not operations on whole arrays: those take Numba seconds more to compile.
    for c in range(dimension):
        v[0, 0, c] = x[c]
        for j in range(4):
            for k in range(clients):
                v[1 + j, k, c] = x[dimension + j * block + k * dimension + c]
    w = x[dimension + 4 * block : dimension + 5 * block].reshape((clients, dimension))
    h = x[dimension + 5 * block :]
    lms_clients(v, system, drive, first, z)
    exchange_clients(z, w, h, s, system, drive, before, client, server, v)
    for c in range(dimension):
        out[c] = v[0, 0, c] / eigenvalue
        for j in range(4):
            for k in range(clients):
                out[dimension + j * block + k * dimension + c] = v[1 + j, k, c] / eigenvalue
    new_w = out[dimension + 4 * block : dimension + 5 * block].reshape((clients, dimension))
    _eliminated_sums(client, server, s, system, drive, first, eigenvalue, new_w, out[dimension + 5 * block :])


@compiled
def _solve(
    s: FloatArray, system: System, drive: Drive, nothing: Drive, first: FloatArray, before: FloatArray
) -> FloatArray:
    """Restarted GMRES on x − F x = source; `nothing` is a drive that drives nothing."""
    clients, dimension = s.shape
    size = packed_size(clients, dimension)
    source, image, residual, column = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    x = np.zeros(size)
    reduced_step(x, s, system, drive, first, before, 1.0, source)
    scale = np.linalg.norm(source)
    if scale == 0.0:
        return x
    basis = np.empty((_RESTART + 1, size))
    for _ in range(20):
        reduced_step(x, s, system, nothing, first, before, 1.0, image)
        for e in range(size):
            residual[e] = source[e] - x[e] + image[e]
        norm = np.linalg.norm(residual)
        if norm <= _TOLERANCE * scale:
            break
        hessenberg = np.zeros((_RESTART + 1, _RESTART))
        right = np.zeros(_RESTART + 1)
        cosine, sine = np.zeros(_RESTART), np.zeros(_RESTART)
        right[0] = norm
        for e in range(size):
            basis[0, e] = residual[e] / norm
        used = 0
        for j in range(_RESTART):
            reduced_step(basis[j], s, system, nothing, first, before, 1.0, image)
            for e in range(size):
                column[e] = basis[j, e] - image[e]
            for i in range(j + 1):
                hessenberg[i, j] = np.dot(basis[i], column)
                for e in range(size):
                    column[e] -= hessenberg[i, j] * basis[i, e]
            length = np.linalg.norm(column)
            for i in range(j):
                upper = cosine[i] * hessenberg[i, j] + sine[i] * hessenberg[i + 1, j]
                hessenberg[i + 1, j] = -sine[i] * hessenberg[i, j] + cosine[i] * hessenberg[i + 1, j]
                hessenberg[i, j] = upper
            radius = np.hypot(hessenberg[j, j], length)
            cosine[j], sine[j] = hessenberg[j, j] / radius, length / radius
            hessenberg[j, j] = radius
            right[j + 1] = -sine[j] * right[j]
            right[j] = cosine[j] * right[j]
            used = j + 1
            if abs(right[j + 1]) <= _TOLERANCE * scale or length == 0.0:
                break
            for e in range(size):
                basis[j + 1, e] = column[e] / length
        answer = np.zeros(used)
        for i in range(used - 1, -1, -1):
            value = right[i]
            for j in range(i + 1, used):
                value -= hessenberg[i, j] * answer[j]
            answer[i] = value / hessenberg[i, i]
            for e in range(size):
                x[e] += answer[i] * basis[i, e]
    return x


@compiled
def _level(
    server: FloatArray,
    own1: FloatArray,
    own0: FloatArray,
    first: FloatArray,
    r: FloatArray,
    offsets: FloatArray,
    p: float,
    out: FloatArray,
) -> None:
    """Excess network MSE on samples with input variances r and targets displaced by `offsets` (K, V), and MSD."""
    clients, dimension = own1.shape
    excess = 0.0
    for k in range(clients):
        seen = p * own1[k].sum() + (1 - p) * own0[k].sum()
        if offsets.size:
            for c in range(dimension):
                mixed = p * _mean_product(first[1 + k, c], offsets[k])
                mixed += (1 - p) * _mean_product(first[1 + clients + k, c], offsets[k])
                seen += 2.0 * mixed + _mean_product(offsets[k], offsets[k])
        excess += r[k] * seen
    out[0] = excess / clients
    out[1] = server.sum()


@compiled
def steady_states(
    masks: FloatArray,
    system: System,
    drive: Drive,
    nothing: Drive,
    firsts: FloatArray,
    r: FloatArray,
    offsets: FloatArray,
    out: FloatArray,
) -> None:
    """Excess and MSD for each set of masks (N, K, D), given the first moments of each, (N, 2K + 1, D, V)."""
    for i in range(masks.shape[0]):
        s = masks[i]
        clients, dimension = s.shape
        block = clients * dimension
        before = np.empty_like(firsts[i])
        after = firsts[i].copy()
        if drive.directed:
            step_first(after, s, system, drive, before)
        x = _solve(s, system, drive, nothing, firsts[i], before)
        own1 = x[dimension + 2 * block : dimension + 3 * block].reshape((clients, dimension))
        own0 = x[dimension + 3 * block : dimension + 4 * block].reshape((clients, dimension))
        _level(x[:dimension], own1, own0, firsts[i], r, offsets, system.probabilities[0], out[i])


@compiled
def curves(
    masks: FloatArray,
    system: System,
    drive: Drive,
    start: FloatArray,
    r: FloatArray,
    offsets: FloatArray,
    out: FloatArray,
) -> None:
    """Excess and MSD over the iterations for each set of masks; all begin at first moments `start` (V,)."""
    for i in range(masks.shape[0]):
        s = masks[i]
        clients, dimension = s.shape
        square = _mean_product(start, start)
        v = np.full((5, clients, dimension), square)
        z = np.zeros((5, clients, dimension))
        client, server = np.empty((clients, dimension)), np.empty(dimension)
        first = np.empty((2 * clients + 1, dimension, start.size))
        for j in range(2 * clients + 1):
            for e in range(dimension):
                for direction in range(start.size):
                    first[j, e, direction] = start[direction]
        before = np.empty_like(first)
        following = first.copy()
        y = np.empty((clients, clients, dimension))
        w, h = np.zeros((clients, dimension)), np.zeros(dimension)
        found, level, new = np.empty(4), np.empty(2), np.empty(dimension)
        p = system.probabilities[0]
        for n in range(out.shape[2]):
            _level(v[0, 0], v[3], v[4], first, r, offsets, p, level)
            out[i, 0, n], out[i, 1, n] = level[0], level[1]
            if n == 0:
                # The first LMS step of the pairs: everybody starts alike.
                for k in range(clients):
                    for l in range(k + 1, clients):  # noqa: E741
                        for e in range(dimension):
                            value = (system.decay[k] * system.decay[l] + system.swing) * square
                            if drive.directed:
                                value += _pair_push(k, l, start, start, system, drive)
                            y[k, l, e] = value
                            found[:] = value
                            _count_pair(found, k, l, (e - system.shift) % dimension, s, system, w, h)
            lms_clients(v, system, drive, first, z)
            if drive.directed:
                _copy(first, following)
                step_first(following, s, system, drive, before)
            exchange_clients(z, w, h, s, system, drive, before, client, server, v)
            _copy(following, first)
            w[:] = 0.0
            h[:] = 0.0
            for k in range(clients):
                for l in range(k + 1, clients):  # noqa: E741
                    theta = system.decay[k] * system.decay[l] + system.swing
                    for e in range(dimension):
                        value = y[k, l, (e + system.shift) % dimension]
                        _pair_after(value, k, l, e, client, server, s, system, drive, first, theta, found)
                        _count_pair(found, k, l, (e - system.shift) % dimension, s, system, w, h)
                        new[e] = found[3]
                    for e in range(dimension):
                        y[k, l, e] = new[e]


@compiled
def _copy(source: FloatArray, out: FloatArray) -> None:
    """Copy, number by number: `out[:] = source` would compile the text of an error, which takes seconds."""
    for j in range(source.shape[0]):
        for e in range(source.shape[1]):
            for v in range(source.shape[2]):
                out[j, e, v] = source[j, e, v]
