"""Exact moments of tiny fleets by going through every participant set, mask and set of attackers.

Written for models, not errors, and from what each attack does to a number or a sample, so nothing of the theory's
formulas is used here. The state are the first and second moments of X = (w, w_1, …, w_K) for each set of
participants, each weighted with that set's probability.
"""

import itertools

import numpy as np

from psofed import draw_fleet
from psofed.scenario import Scenario


def enumerate_curve(scenario: Scenario, iterations: int, offsets=None) -> tuple[np.ndarray, np.ndarray]:
    """Network MSE and server MSD at iterations 0 … n − 1; `offsets` (K, D) displace the clients' targets."""
    if scenario.selection.pattern.kind == "random" or scenario.num_shared == scenario.dimension:
        return _Enumeration(scenario, offsets, None, {}).curve(iterations)
    clients, size = scenario.num_clients, scenario.dimension
    if scenario.selection.coordinated:
        starts = [(o,) * clients for o in range(size)]
    else:
        starts = list(itertools.product(range(size), repeat=clients))
    moves: dict = {}
    curves = [_Enumeration(scenario, offsets, start, moves).curve(iterations) for start in starts]
    return np.mean([c[0] for c in curves], axis=0), np.mean([c[1] for c in curves], axis=0)


class _Enumeration:
    def __init__(self, scenario: Scenario, offsets, starts, moves: dict) -> None:
        self.scenario, self.starts, self.moves = scenario, starts, moves
        self.k, self.d = scenario.num_clients, scenario.dimension
        self.fleet = draw_fleet(scenario)
        self.covariances = self.fleet.covariances()
        self.targets = np.tile(self.fleet.target, (self.k, 1)) + (0.0 if offsets is None else offsets)
        chosen = list(itertools.combinations(range(self.k), scenario.num_participants))
        self.sets = [np.isin(np.arange(self.k), c) for c in chosen]
        self.patterns = self._attack_patterns()

    def curve(self, iterations: int) -> tuple[np.ndarray, np.ndarray]:
        size = (self.k + 1) * self.d
        sets = len(self.sets)
        state = np.full(sets, 1 / sets), np.zeros((sets, size)), np.zeros((sets, size, size))
        network, server = np.empty(iterations), np.empty(iterations)
        for n in range(iterations):
            network[n], server[n] = self._metrics(state)
            state = self._step(state, n)
        return network, server

    def _block(self, j: int) -> slice:
        return slice(j * self.d, (j + 1) * self.d)

    def _metrics(self, state) -> tuple[float, float]:
        mean, second = state[1].sum(axis=0), state[2].sum(axis=0)
        network = 0.0
        for k in range(self.k):
            b, w = self._block(k + 1), self.targets[k]
            error = second[b, b] - np.outer(mean[b], w) - np.outer(w, mean[b]) + np.outer(w, w)
            network += np.trace(self.covariances[k] @ error) + self.fleet.noise_variance[k]
        b, w = self._block(0), self.fleet.target
        return network / self.k, float(np.trace(second[b, b]) - 2 * w @ mean[b] + w @ w)

    def _attack_patterns(self):
        """All sets of attackers with their probabilities."""
        attack = self.scenario.attack
        if attack is None:
            return [(1.0, np.zeros(self.k, bool))]
        if attack.byzantine_set == "fixed":
            byzantine = [np.arange(self.k) < attack.num_byzantine]
        else:
            chosen = itertools.combinations(range(self.k), attack.num_byzantine)
            byzantine = [np.isin(np.arange(self.k), c) for c in chosen]
        found = []
        for t in itertools.product((False, True), repeat=self.k):
            t = np.array(t)
            chance = np.mean(
                [
                    0.0
                    if np.any(t & ~b)
                    else attack.probability ** t.sum() * (1 - attack.probability) ** (b & ~t).sum()
                    for b in byzantine
                ]
            )
            if chance > 0:
                found.append((chance, t))
        return found

    def _masks(self, n: int):
        size, shared = self.d, self.scenario.num_shared
        if self.starts is not None:
            place = np.arange(size)[None] - np.array(self.starts)[:, None] - n * shared
            return [(place % size < shared).astype(float)]
        single = [np.isin(np.arange(size), c).astype(float) for c in itertools.combinations(range(size), shared)]
        if self.scenario.selection.coordinated:
            return [np.tile(m, (self.k, 1)) for m in single]
        return [np.array(m) for m in itertools.product(single, repeat=self.k)]

    def _step(self, state, n: int):
        """One iteration; `state` holds a weight, a mean and a second moment for each set of participants."""
        masks = self._masks(n + 1)
        key = np.array(masks).tobytes()  # masks come back, in every iteration or every other
        if key not in self.moves:
            self.moves[key] = self._moves(masks)
        chances = np.array([chance for chance, _ in self.patterns])[:, None]
        learned = [chances.reshape(-1, *(1,) * x.ndim) * x for x in state]  # (patterns of attack, sets, …)
        weight, mean, second = self._learn(*learned)
        if self.scenario.uplink == "redrawn":
            weight, mean, second = (
                np.repeat(x.mean(axis=1, keepdims=True), x.shape[1], axis=1) for x in (weight, mean, second)
            )
        # Axes of the moves: pattern of attack, set of uploaders, mask, set of those who take, …
        matrix, constant, noise = self.moves[key]
        share = 1 / (matrix.shape[2] * len(self.sets))
        weight, mean, second = weight[:, :, None, None], mean[:, :, None, None], second[:, :, None, None]
        moved = _apply(matrix, mean)
        following = (
            np.broadcast_to(weight, moved.shape[:-1]),
            moved + weight[..., None] * constant,
            matrix @ second @ _turned(matrix)
            + _outer(moved, constant)
            + _outer(constant, moved)
            + weight[..., None, None] * (_outer(constant, constant) + noise),
        )
        return tuple(share * x.sum(axis=(0, 1, 2)) for x in following)

    def _moves(self, masks):
        """What upload and download do to X: a matrix, a constant and a covariance of noise for each combination."""
        found = []
        for (_, attacking), uploaders, mask in itertools.product(self.patterns, self.sets, masks):
            upload = self._upload(uploaders, mask, attacking)
            found += [self._download(taking, mask, *upload) for taking in self.sets]
        counts = len(self.patterns), len(self.sets), len(masks), len(self.sets)
        return tuple(np.array(x).reshape(*counts, *x[0].shape) for x in zip(*found, strict=True))

    def _learn(self, weight, mean, second):
        """LMS step of all clients, from x' = B q and y' − x'ᵀv = aᵀq + ν' with q = (x, ξ) Gaussian.

        The first axes are the pattern of attack and the set of participants.
        """
        mean, second = mean.copy(), second.copy()
        mu, attack, d = self.scenario.stepsize, self.scenario.attack, self.d
        attacking = np.array([attacking for _, attacking in self.patterns])
        both = np.hstack([np.eye(d), np.eye(d)])
        poisons_labels, poisons_data = (
            attack is not None and attack.kind == kind for kind in ("label-poisoning", "data-poisoning")
        )
        for k in range(self.k):
            label = np.where(attacking[:, k], -attack.scale, 1.0) if poisons_labels else np.ones(len(attacking))
            spread = attacking[:, k] * (attack.variance if poisons_data else 0.0)
            c = np.zeros((len(attacking), 1, 2 * d, 2 * d))
            c[:, :, :d, :d] = self.covariances[k]
            c[:, 0, d:, d:] = spread[:, None, None] * np.eye(d)
            # a = a0 − Bᵀ v
            a0 = np.zeros((len(attacking), 1, 2 * d))
            a0[:, 0, :d] = label[:, None] * self.targets[k]
            own = self._block(k + 1)
            m, p = mean[..., own].copy(), second[..., own, own].copy()
            matrix = np.tile(np.eye((self.k + 1) * d), (len(attacking), 1, 1, 1))
            matrix[..., own, own] -= mu * both @ c @ both.T
            constant = np.zeros((len(attacking), 1, (self.k + 1) * d))
            constant[..., own] = mu * _apply(both @ c, a0)
            moved = _apply(matrix, mean)
            second = (
                matrix @ second @ _turned(matrix)
                + _outer(moved, constant)
                + _outer(constant, moved)
                + weight[..., None, None] * _outer(constant, constant)
            )
            mean = moved + weight[..., None] * constant
            # What the means above lack: E[x'x'ᵀ (aᵀq)²] less the product of its means
            cross = _outer(a0, m) @ both
            aa = weight[..., None, None] * _outer(a0, a0) - cross - _turned(cross) + both.T @ p @ both
            trace = np.trace(c @ aa, axis1=-2, axis2=-1)[..., None, None]
            full = both @ (c * trace + 2 * c @ aa @ c) @ both.T
            second[..., own, own] += mu**2 * (full - both @ c @ aa @ c @ both.T)
            noise = weight * label[:, None] ** 2 * self.fleet.noise_variance[k]
            second[..., own, own] += mu**2 * noise[..., None, None] * (both @ c @ both.T)
        return weight, mean, second

    def _upload(self, uploaders, mask, attacking):
        """The server's new model as matrix, constant and noise loadings (columns: K own, then one common)."""
        d, size, attack = self.d, (self.k + 1) * self.d, self.scenario.attack
        server = np.zeros((d, size))
        server[:, self._block(0)] = np.eye(d)
        constant, own, common = np.zeros(d), np.zeros((self.k, d)), np.zeros(d)
        total, count = server.copy(), uploaders.sum()
        clean = {}
        for k in np.flatnonzero(uploaders):
            sent = np.zeros((d, size))
            sent[:, self._block(k + 1)] = np.eye(d)
            clean[k] = sent
        for k in clean:
            sent, offset, deviation, together = clean[k], 0.0, 0.0, 0.0
            if attacking[k]:
                kind = attack.kind
                if kind == "gaussian":
                    deviation = attack.variance**0.5
                elif kind == "colluding-gaussian":
                    together = attack.variance**0.5
                elif kind == "constant-bias":
                    offset = attack.bias
                elif kind == "sign-flip" and attack.of == "model":
                    sent = -attack.scale * sent
                elif kind == "sign-flip":
                    sent = server - attack.scale * (sent - server)
                elif kind == "scaled-update":
                    sent = server + attack.scale * (sent - server)
                elif kind in ("drop-out", "non-finite"):
                    sent = server
            shared = mask[k] / count
            total = total + shared[:, None] * (sent - server)
            constant = constant + shared * offset
            own[k] = shared * deviation
            common = common + shared * together
        return total, constant, own, common

    def _download(self, taking, mask, total, constant, own, common):
        d, size = self.d, (self.k + 1) * self.d
        matrix, vector = np.eye(size), np.zeros(size)
        loads = np.zeros((size, d, self.k + 1))  # each entry's noise by entry, own of K and common
        matrix[self._block(0)], vector[self._block(0)] = total, constant
        for i in range(d):
            loads[i, i, : self.k], loads[i, i, self.k] = own[:, i], common[i]
        for k in np.flatnonzero(taking):
            rows = self._block(k + 1)
            keep = np.diag(1 - mask[k])
            unit = np.zeros((d, size))
            unit[:, rows] = keep
            matrix[rows] = unit + mask[k][:, None] * total
            vector[rows] = mask[k] * constant
            loads[rows] = mask[k][:, None, None] * loads[self._block(0)]
        flat = loads.reshape(size, -1)
        return matrix, vector, flat @ flat.T


def _apply(matrix, vector):
    return (matrix @ vector[..., None])[..., 0]


def _outer(first, second):
    return first[..., :, None] * second[..., None, :]


def _turned(matrix):
    return np.swapaxes(matrix, -1, -2)
