"""Compiled steps of server and single clients: first moments, LMS step, upload and download for given windows.

Upload and download at place c, with the sums over pairs w and h (``z.sums``, ``z.together``), are

    E[g'²]    = g² + (2/s) Σ_k s_k E[b_k d_k g] + (1/s²) (Σ_k s_k E[b_k d_k²] + Σ_{k≠l} s_k s_l E[b_k b_l d_k d_l]),
    E[g' z_l] = E[g z_l] + (1/s) Σ_k s_k E[b_k d_k z_l],        d_k = A_k z_k + (G_k − 1) g + t_k (c − δ_k),

of which :class:`psofed.theory.steps.exchange.FixedMasks` is the plain form (a test holds the two together). ``mask`` is
s, (D, K).
"""

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled
from psofed.theory.maps.windows.arguments import PairGains, WindowDrive, WindowMoments, WindowSystem


@compiled(by_content=True)
def mean_product(x: FloatArray, y: FloatArray) -> float:
    """Mean of the products of two vectors."""
    total = 0.0
    for v in range(x.size):
        total += x[v] * y[v]
    return total / x.size


@compiled(by_content=True)
def step_first(
    first: FloatArray, mask: FloatArray, system: WindowSystem, drive: WindowDrive, before: FloatArray
) -> None:
    """Fill the first moments before the upload (`before`), then move `first` to after the next download.

    Both are (2K + 1, D, V): the server, clients that have downloaded, clients that have not.
    """
    dimension, clients = mask.shape
    p, kinds = system.single, first.shape[2]
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
                if mask[c, k] > 0.0:
                    sent = system.own[k] * before[1 + k, c, v] + system.server[k] * g
                    total += p * (sent + system.chance[k] * drive.constant[v] - g)
            g += total / system.participants
            first[0, c, v] = g
            for k in range(clients):
                kept = p * before[1 + k, c, v] + (1 - p) * before[1 + clients + k, c, v]
                first[1 + k, c, v] = g if mask[c, k] > 0.0 else kept
                first[1 + clients + k, c, v] = kept


@compiled(by_content=True)
def lms_clients(
    v: WindowMoments, system: WindowSystem, drive: WindowDrive, first: FloatArray, out: WindowMoments
) -> None:
    """LMS step of server and clients, mixing if the upload set is redrawn, then relabelling; sums are not touched."""
    dimension, clients = v.own1.shape
    p = system.single
    for c in range(dimension):
        out.server[c] = v.server[(c + system.shift) % dimension]
    for k in range(clients):
        trace1 = trace0 = 0.0
        for c in range(dimension):
            trace1 += v.own1[c, k]
            trace0 += v.own0[c, k]
        added1 = system.trace[k] * trace1 + drive.noise[k]
        added0 = system.trace[k] * trace0 + drive.noise[k]
        if drive.directed:
            # tr of m eᵀ + e mᵀ + e eᵀ, by which the trace of E[(v + e)(v + e)ᵀ] is larger
            for b in range(drive.weight.shape[0]):
                moved = drive.displacement[b, k]
                factor = drive.weight[b, k] * drive.scaled[b, k] ** 2
                for c in range(dimension):
                    square = mean_product(moved, moved)
                    added1 += factor * (2.0 * mean_product(first[1 + k, c], moved) + square)
                    added0 += factor * (2.0 * mean_product(first[1 + clients + k, c], moved) + square)
        for c in range(dimension):
            e = (c + system.shift) % dimension
            cross1, cross0 = system.decay[k] * v.cross1[e, k], system.decay[k] * v.cross0[e, k]
            own1, own0 = system.keep[k] * v.own1[e, k] + added1, system.keep[k] * v.own0[e, k] + added0
            if drive.directed:
                push = mean_product(first[0, e], drive.push[0, k])
                cross1 += push
                cross0 += push
                for b in range(drive.weight.shape[0]):
                    a, weight, moved = drive.scaled[b, k], drive.weight[b, k], drive.displacement[b, k]
                    square = mean_product(moved, moved)
                    mixed = mean_product(first[1 + k, e], moved)
                    own1 += weight * (2.0 * a * a * (2.0 * mixed + square) - 2.0 * a * mixed)
                    mixed = mean_product(first[1 + clients + k, e], moved)
                    own0 += weight * (2.0 * a * a * (2.0 * mixed + square) - 2.0 * a * mixed)
            if system.redrawn:
                cross1 = cross0 = p * cross1 + (1 - p) * cross0
                own1 = own0 = p * own1 + (1 - p) * own0
            out.cross1[c, k], out.cross0[c, k] = cross1, cross0
            out.own1[c, k], out.own0[c, k] = own1, own0


@compiled(by_content=True)
def exchange_clients(
    z: WindowMoments,
    mask: FloatArray,
    system: WindowSystem,
    drive: WindowDrive,
    before: FloatArray,
    got: PairGains,
    out: WindowMoments,
) -> None:
    """Fill `got` and the moments of server and clients after the next download (`out`); sums are not touched."""
    dimension, clients = mask.shape
    p, pair, only, count = system.single, system.pair, system.only, system.participants
    alpha, gamma = system.affine_own, system.affine_server
    for c in range(dimension):
        g = z.server[c]
        constant2 = constant_server = 0.0
        if drive.directed:
            constant2 = mean_product(drive.constant, drive.constant)
            constant_server = mean_product(drive.constant, before[0, c])
        total, second = g, z.together[c]
        # Sums over clients that share place c of the factors of z, g and c, for the means and for what swings with t
        n = a_z = a_m = sum_g = sum_t = 0.0
        same = swing_z = swing_m = 0.0
        for k in range(clients):
            if mask[c, k] == 0.0:
                continue
            a, rest, t = system.own[k], system.server[k] - 1.0, system.chance[k]
            cross1, own1, mean = z.cross1[c, k], z.own1[c, k], 0.0
            if drive.directed:
                mean = mean_product(drive.constant, before[1 + k, c])
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
        # Of different clients: the product of the sums less the sum of the products
        others = 2.0 * a_z * sum_g + sum_g * sum_g * g + 2.0 * a_m * sum_t
        others += 2.0 * sum_g * sum_t * constant_server + sum_t * sum_t * (constant2 + drive.common) - same
        if system.covariance != 0.0:
            b = alpha - 1.0
            part = 2.0 * b * gamma * swing_z * (n - 1.0) + 2.0 * b * swing_m * (n - 1.0)
            part += (gamma * gamma * g + 2.0 * gamma * constant_server + constant2) * n * (n - 1.0)
            others += system.covariance * part
        server = total + (second + pair * others) / count**2
        got.server[c], out.server[c] = server, server + drive.walk
        for k in range(clients):
            s, cross1, cross0, own1 = mask[c, k], z.cross1[c, k], z.cross0[c, k], z.own1[c, k]
            rest, t = system.server[k] - 1.0, system.chance[k]
            value = z.sums[c, k] + (sum_g - s * rest) * (pair * cross1 + only * cross0)
            mean1 = 0.0
            if drive.directed:
                mean1 = mean_product(drive.constant, before[1 + k, c])
                mean0 = mean_product(drive.constant, before[1 + clients + k, c])
                value += (sum_t - s * t) * (pair * mean1 + only * mean0)
            value += s * p * (system.own[k] * own1 + rest * cross1 + t * mean1)
            client = p * cross1 + (1 - p) * cross0 + value / count
            own = p * own1 + (1 - p) * z.own0[c, k]
            got.client[c, k] = client
            out.cross1[c, k] = (1 - s) * client + s * server + drive.walk
            out.cross0[c, k] = client + drive.walk
            out.own1[c, k] = (1 - s) * own + s * server + drive.walk
            out.own0[c, k] = own + drive.walk
