"""Round-robin masks with an offset for each client, over white inputs: many offsets, each solved exactly, compiled.

Given all offsets the masks are certain, and the recursion is that of :class:`psofed.theory.exchange.FixedMasks`, of
which this is the compiled form (a test holds the two together). The law of the server's error involves the
offsets of all clients at once, so no finite set of moments averaged over offsets closes; what can be done is to
solve the recursion for given offsets and to average the solutions, over all offsets or over a sample of them.

Entries are labelled by their place c relative to the moving frame, in which client k's mask is always
s_k(c) = 1 if (c − o_k) mod D < M, and every iteration relabels c + M as c.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled
from psofed.theory.krylov import dominant_eigenvalue
from psofed.theory.recursion import Sources

_RESTART = 60
_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class WindowProblem:
    """What the compiled recursions need beyond offsets and stepsize.

    Attributes
    ----------
    probabilities : array (4,)
        p_c, E[a_k a_l], E[a_k (1 − a_l)], E[(1 − a_k)(1 − a_l)].
    participants, shift : int
        |S_n| and M.
    redrawn : bool
        Whether the uploading participants are drawn afresh.
    input_variance, noise_variance, poison : array (K,)
        ς_k², σ_νk², and E[(τ_k δ_k)²] per uploaded entry.
    walk : float
        q: variance of the step each entry of the target takes per iteration.
    """

    probabilities: FloatArray
    participants: int
    shift: int
    redrawn: bool
    input_variance: FloatArray
    noise_variance: FloatArray
    poison: FloatArray
    walk: float = 0.0

    def steady_states(self, masks: FloatArray, stepsize: float, sources: Sources) -> FloatArray:
        """Excess network MSE and server MSD for each of N sets of masks (N, K, D); shape (N, 2)."""
        out = np.empty((masks.shape[0], 2))

        def solve(part: slice) -> None:
            _steady_states(
                masks[part], stepsize, self.probabilities, self.participants, self.shift, self.redrawn,
                self.input_variance, sources.noise * self.noise_variance, sources.attack * self.poison,
                sources.drift * self.walk, out[part],
            )  # fmt: skip

        _in_parts(solve, len(masks))
        return out

    def growth(self, mask: FloatArray, stepsize: float, eigenvalue: float) -> float:
        """Spectral radius of the reduced step at λ = `eigenvalue`, for one set of masks (K, D)."""
        clients, dimension = mask.shape
        work = np.zeros((5, clients, dimension)), np.empty((clients, dimension)), np.empty(dimension)
        nothing = np.zeros(clients)

        def step(x: FloatArray) -> FloatArray:
            out = np.empty_like(x)
            _reduced_step(
                x, mask, stepsize, self.probabilities, self.participants, self.shift, self.redrawn,
                self.input_variance, nothing, nothing, 0.0, eigenvalue, *work, out,
            )  # fmt: skip
            return out

        return dominant_eigenvalue(step, np.ones(_size(clients, dimension)))

    def curves(self, masks: FloatArray, stepsize: float, iterations: int) -> FloatArray:
        """Excess network MSE and server MSD over the iterations, averaged over the sets of masks; shape (2, n)."""
        out = np.empty((masks.shape[0], 2, iterations))

        def run(part: slice) -> None:
            _curves(
                masks[part], stepsize, self.probabilities, self.participants, self.shift, self.redrawn,
                self.input_variance, self.noise_variance, self.poison, self.walk, out[part],
            )  # fmt: skip

        _in_parts(run, len(masks))
        return np.asarray(out.mean(axis=0))


def _in_parts(work: Callable[[slice], None], count: int) -> None:
    """Call `work` on slices that make up ``range(count)``, on all cores; the kernels let go of the GIL."""
    workers = min(os.cpu_count() or 1, count)
    step = max(1, -(-count // (4 * workers)))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, [slice(start, start + step) for start in range(0, count, step)]))


# The packed unknowns of one solve, for K clients and D entries, are
#   g (D), cross1, cross0, own1, own0 (K, D each), and, before the upload and already relabelled,
#   w_l = Σ_{m≠l} s_m E[b_m z_m z_l] (K, D) and h = Σ_{k≠l} s_k s_l E[b_k b_l z_k z_l] (D).


@compiled
def _size(clients, dimension):
    return dimension * (2 + 5 * clients)


@compiled
def _exchange_clients(z, w, h, s, prob, participants, poison, walk, client, server, out):
    """Fill E[g' z_l] (client), E[g'²] (server) and the clients' moments after the next download (out).

    `walk` is what the target's next step adds to every moment in `out`.
    """
    clients, dimension = s.shape
    p, pair, first = prob[0], prob[1], prob[2]
    for c in range(dimension):
        shared = 0.0
        for k in range(clients):
            shared += s[k, c]
        g = z[0, 0, c]
        total = g
        second = h[c]
        for k in range(clients):
            others = shared - s[k, c]
            cross1, cross0, own1 = z[1, k, c], z[2, k, c], z[3, k, c]
            cross = p * cross1 + (1 - p) * cross0
            cross_other = pair * cross1 + first * cross0
            client[k, c] = (
                cross + (w[k, c] - others * cross_other + s[k, c] * p * (own1 - cross1)) / participants
            )
            if s[k, c] > 0.0:
                total += 2.0 * p * (cross1 - g) / participants
                second += p * (own1 - 2 * cross1 + g) + p * poison[k]
                second += pair * others * (g - 2 * cross1)
        server[c] = total + second / participants**2
        out[0, 0, c] = server[c] + walk
        for k in range(clients):
            own = p * z[3, k, c] + (1 - p) * z[4, k, c]
            out[1, k, c] = (server[c] if s[k, c] > 0.0 else client[k, c]) + walk
            out[2, k, c] = client[k, c] + walk
            out[3, k, c] = (server[c] if s[k, c] > 0.0 else own) + walk
            out[4, k, c] = own + walk


@compiled
def _lms_clients(v, mu, r, noise, redrawn, shift, p, z):
    """LMS step of server and clients, mixing if the upload set is redrawn, then relabelling."""
    clients, dimension = v.shape[1], v.shape[2]
    for c in range(dimension):
        z[0, 0, c] = v[0, 0, (c + shift) % dimension]
    for k in range(clients):
        a = mu * r[k]
        decay, quadratic = 1.0 - a, 1.0 - 2.0 * a + 2.0 * a * a
        trace1 = trace0 = 0.0
        for c in range(dimension):
            trace1 += v[3, k, c]
            trace0 += v[4, k, c]
        added = mu * mu * r[k] * noise[k]
        for c in range(dimension):
            e = (c + shift) % dimension
            cross1, cross0 = decay * v[1, k, e], decay * v[2, k, e]
            own1 = quadratic * v[3, k, e] + a * a * trace1 + added
            own0 = quadratic * v[4, k, e] + a * a * trace0 + added
            if redrawn:
                cross1 = cross0 = p * cross1 + (1 - p) * cross0
                own1 = own0 = p * own1 + (1 - p) * own0
            z[1, k, c], z[2, k, c], z[3, k, c], z[4, k, c] = cross1, cross0, own1, own0


@compiled
def _pair_forcing(sk, sl, client_k, client_l, server, walk):
    """Return the forcing of both, one (k participates) and its mirror image; 0/1 masks."""
    if sk > 0.0 and sl > 0.0:
        return server + walk, client_l + walk, client_k + walk
    if sk > 0.0:
        return client_l + walk, client_l + walk, walk
    if sl > 0.0:
        return client_k + walk, walk, client_k + walk
    return walk, walk, walk


@compiled
def _eliminated_sums(client, server, s, mu, r, prob, redrawn, shift, walk, eigenvalue, w, h):
    """Sum over pairs in a steady state: each pair's cycle through the entries is solved on its own."""
    clients, dimension = s.shape
    p, pair, first, neither = prob[0], prob[1], prob[2], prob[3]
    w[:] = 0.0
    h[:] = 0.0
    a, b = dimension, shift
    while b:
        a, b = b, a % b
    orbits, cycles = a, dimension // a
    for k in range(clients):
        for l in range(k + 1, clients):  # noqa: E741
            theta = (1.0 - mu * r[k]) * (1.0 - mu * r[l]) / eigenvalue
            for start in range(orbits):
                # y of label c after relabelling comes from c + shift; go once round to close the cycle
                value, factor, c = 0.0, 1.0, start
                for _ in range(cycles):
                    e = (c - shift) % dimension
                    both, one, mirrored = _pair_forcing(
                        s[k, e], s[l, e], client[k, e], client[l, e], server[e], walk
                    )
                    kept_k, kept_l = 1.0 - s[k, e], 1.0 - s[l, e]
                    alpha = theta * (pair * kept_k * kept_l + first * (kept_k + kept_l) + neither)
                    value = alpha * value + theta * (pair * both + first * (one + mirrored) + neither * walk)
                    factor *= alpha
                    c = e
                value /= 1.0 - factor
                for _ in range(cycles):
                    # value: the average before relabelling at c, which the exchange at e = c − shift sees
                    e = (c - shift) % dimension
                    kept_k, kept_l = 1.0 - s[k, e], 1.0 - s[l, e]
                    both, one, mirrored = _pair_forcing(
                        s[k, e], s[l, e], client[k, e], client[l, e], server[e], walk
                    )
                    both += kept_k * kept_l * value
                    one += kept_k * value
                    mirrored += kept_l * value
                    value = theta * (pair * both + first * (one + mirrored) + neither * (value + walk))
                    # what the next exchange, at e − shift, sees of this pair
                    n = (e - shift) % dimension
                    if redrawn:
                        w[l, n] += s[k, n] * p * value
                        w[k, n] += s[l, n] * p * value
                        h[n] += 2.0 * s[k, n] * s[l, n] * pair * value
                    else:
                        w[l, n] += s[k, n] * theta * (pair * both + first * one)
                        w[k, n] += s[l, n] * theta * (pair * both + first * mirrored)
                        h[n] += 2.0 * s[k, n] * s[l, n] * theta * pair * both
                    c = e


@compiled
def _reduced_step(
    x,
    s,
    mu,
    prob,
    participants,
    shift,
    redrawn,
    r,
    noise,
    poison,
    walk,
    eigenvalue,
    work_z,
    client,
    server,
    out,
):
    """One iteration on the packed unknowns: server and clients divided by λ, then the sums over pairs."""
    clients, dimension = s.shape
    block = dimension * clients
    v = np.zeros((5, clients, dimension))
    v[0, 0] = x[:dimension]
    for j in range(4):
        v[1 + j] = x[dimension + j * block : dimension + (j + 1) * block].reshape((clients, dimension))
    w = x[dimension + 4 * block : dimension + 5 * block].reshape((clients, dimension))
    h = x[dimension + 5 * block :]
    _lms_clients(v, mu, r, noise, redrawn, shift, prob[0], work_z)
    _exchange_clients(work_z, w, h, s, prob, participants, poison, walk, client, server, v)
    out[:dimension] = v[0, 0] / eigenvalue
    for j in range(4):
        out[dimension + j * block : dimension + (j + 1) * block] = v[1 + j].ravel() / eigenvalue
    new_w = np.empty((clients, dimension))
    new_h = np.empty(dimension)
    _eliminated_sums(client, server, s, mu, r, prob, redrawn, shift, walk, eigenvalue, new_w, new_h)
    out[dimension + 4 * block : dimension + 5 * block] = new_w.ravel()
    out[dimension + 5 * block :] = new_h


@compiled
def _solve(s, mu, prob, participants, shift, redrawn, r, noise, poison, walk):
    """Restarted GMRES on x − F x = source."""
    clients, dimension = s.shape
    size = _size(clients, dimension)
    work_z = np.zeros((5, clients, dimension))
    client, server = np.empty((clients, dimension)), np.empty(dimension)
    source, image = np.empty(size), np.empty(size)
    nothing = np.zeros(clients)
    x = np.zeros(size)
    _reduced_step(
        x,
        s,
        mu,
        prob,
        participants,
        shift,
        redrawn,
        r,
        noise,
        poison,
        walk,
        1.0,
        work_z,
        client,
        server,
        source,
    )
    scale = np.linalg.norm(source)
    if scale == 0.0:
        return x
    basis = np.empty((_RESTART + 1, size))
    for _ in range(20):
        _reduced_step(
            x,
            s,
            mu,
            prob,
            participants,
            shift,
            redrawn,
            r,
            nothing,
            nothing,
            0.0,
            1.0,
            work_z,
            client,
            server,
            image,
        )
        residual = source - x + image
        norm = np.linalg.norm(residual)
        if norm <= _TOLERANCE * scale:
            break
        hessenberg = np.zeros((_RESTART + 1, _RESTART))
        right = np.zeros(_RESTART + 1)
        cosine, sine = np.zeros(_RESTART), np.zeros(_RESTART)
        right[0] = norm
        basis[0] = residual / norm
        used = 0
        for j in range(_RESTART):
            _reduced_step(
                basis[j],
                s,
                mu,
                prob,
                participants,
                shift,
                redrawn,
                r,
                nothing,
                nothing,
                0.0,
                1.0,
                work_z,
                client,
                server,
                image,
            )
            column = basis[j] - image
            for i in range(j + 1):
                hessenberg[i, j] = np.dot(basis[i], column)
                column -= hessenberg[i, j] * basis[i]
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
            basis[j + 1] = column / length
        answer = np.zeros(used)
        for i in range(used - 1, -1, -1):
            value = right[i]
            for j in range(i + 1, used):
                value -= hessenberg[i, j] * answer[j]
            answer[i] = value / hessenberg[i, i]
            x += answer[i] * basis[i]
    return x


@compiled
def _level(server, own1, own0, r, p):
    excess = 0.0
    for k in range(r.size):
        excess += r[k] * (p * own1[k].sum() + (1 - p) * own0[k].sum())
    return excess / r.size, server.sum()


@compiled
def _steady_states(masks, mu, prob, participants, shift, redrawn, r, noise, poison, walk, out):
    for i in range(masks.shape[0]):
        s = masks[i]
        clients, dimension = s.shape
        block = clients * dimension
        x = _solve(s, mu, prob, participants, shift, redrawn, r, noise, poison, walk)
        own1 = x[dimension + 2 * block : dimension + 3 * block].reshape((clients, dimension))
        own0 = x[dimension + 3 * block : dimension + 4 * block].reshape((clients, dimension))
        out[i, 0], out[i, 1] = _level(x[:dimension], own1, own0, r, prob[0])


@compiled
def _pair_step(y, client, server, s, theta, prob, redrawn, shift, walk, w, h):
    """One iteration of every pair: y (K, K, D) is the average before relabelling; also the next sums."""
    clients, dimension = s.shape
    p, pair, first, neither = prob[0], prob[1], prob[2], prob[3]
    w[:] = 0.0
    h[:] = 0.0
    new = np.empty(dimension)
    for k in range(clients):
        for l in range(k + 1, clients):  # noqa: E741
            for e in range(dimension):
                value = y[k, l, (e + shift) % dimension]
                kept_k, kept_l = 1.0 - s[k, e], 1.0 - s[l, e]
                both, one, mirrored = _pair_forcing(
                    s[k, e], s[l, e], client[k, e], client[l, e], server[e], walk
                )
                both += kept_k * kept_l * value
                one += kept_k * value
                mirrored += kept_l * value
                t = theta[k, l]
                new[e] = t * (pair * both + first * (one + mirrored) + neither * (value + walk))
                n = (e - shift) % dimension
                if redrawn:
                    w[l, n] += s[k, n] * p * new[e]
                    w[k, n] += s[l, n] * p * new[e]
                    h[n] += 2.0 * s[k, n] * s[l, n] * pair * new[e]
                else:
                    w[l, n] += s[k, n] * t * (pair * both + first * one)
                    w[k, n] += s[l, n] * t * (pair * both + first * mirrored)
                    h[n] += 2.0 * s[k, n] * s[l, n] * t * pair * both
            y[k, l] = new


@compiled
def _curves(masks, mu, prob, participants, shift, redrawn, r, noise, poison, walk, out):
    for i in range(masks.shape[0]):
        s = masks[i]
        clients, dimension = s.shape
        start = 1.0 / dimension
        v = np.full((5, clients, dimension), start)
        z = np.zeros((5, clients, dimension))
        client, server = np.empty((clients, dimension)), np.empty(dimension)
        theta = np.outer(1.0 - mu * r, 1.0 - mu * r)
        y = np.empty((clients, clients, dimension))
        w, h = np.zeros((clients, dimension)), np.zeros(dimension)
        p, pair = prob[0], prob[1]
        for k in range(clients):
            for l in range(clients):  # noqa: E741
                y[k, l] = theta[k, l] * start
                if k != l:
                    w[l] += p * s[k] * theta[k, l] * start
                    h += pair * s[k] * s[l] * theta[k, l] * start
        for n in range(out.shape[2]):
            out[i, 0, n], out[i, 1, n] = _level(v[0, 0], v[3], v[4], r, p)
            _lms_clients(v, mu, r, noise, redrawn, shift, p, z)
            _exchange_clients(z, w, h, s, prob, participants, poison, walk, client, server, v)
            _pair_step(y, client, server, s, theta, prob, redrawn, shift, walk, w, h)
