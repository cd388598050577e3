"""Exact moments of tiny fleets with every part of the iteration open, by going through all that may happen.

Y = (1, w, w_1, …, w_K) are models, not errors, and E[Y Yᵀ] goes through linear maps of Y whose randomness is a finite
list of atoms: who is available, drawn and heard, masks, attacks, and samples. Gaussian inputs become the 3^D nodes of
a Gauss–Hermite rule, exact for the fourth powers that occur, and noise two points. Nothing of the theory is used.
"""

import itertools

import numpy as np

from psofed import draw_fleet
from psofed.scenario import Scenario


def enumerate_opened(scenario: Scenario, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Network MSE and server MSD at iterations 0 … n − 1, for random masks in two dimensions."""
    return _Atoms(scenario).curve(iterations)


class _Atoms:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.fleet = scenario, draw_fleet(scenario)
        self.k, self.d = scenario.num_clients, scenario.dimension
        self.size = 1 + (self.k + 1) * self.d
        self.masks = self._all_masks()
        self.outcomes = list(self._all_outcomes())
        self.patterns = list(self._all_patterns())
        self.learned: dict = {}

    def block(self, j: int) -> slice:
        return slice(1 + j * self.d, 1 + (j + 1) * self.d)

    def curve(self, iterations: int) -> tuple[np.ndarray, np.ndarray]:
        start = np.zeros((self.size, self.size))
        start[0, 0] = 1.0
        states = {index: start / len(self.masks) for index in range(len(self.masks))}
        network, server = np.zeros(iterations), np.zeros(iterations)
        for n in range(iterations):
            total = sum(states.values())
            server[n] = self.error(total, 0, np.eye(self.d))
            after = np.zeros((len(self.masks), self.size, self.size))
            for index, state in states.items():
                for chance, (there, down, up, asked) in self.outcomes:
                    got = chance * self.download(state, self.masks[index], down)
                    for k in range(self.k):
                        error = self.error(got, k + 1, self.fleet.covariances()[k])
                        network[n] += (error + got[0, 0] * self.fleet.noise_variance[k]) / self.k
                    for also, attacking in self.patterns:
                        z = also * (self.learning(there, attacking) @ got.ravel()).reshape(got.shape)
                        for new, mask in enumerate(self.masks):
                            after[new] += self.upload(z, mask, up, asked, attacking) / len(self.masks)
            states = dict(enumerate(after))
        return network, server

    def error(self, state, j: int, weight) -> float:
        b, w = self.block(j), self.fleet.target
        mean, second = state[0, b], state[b, b]
        square = second - np.outer(mean, w) - np.outer(w, mean) + state[0, 0] * np.outer(w, w)
        return float(np.trace(weight @ square))

    def _all_masks(self):
        single = [
            np.isin(np.arange(self.d), c) * 1.0 for c in itertools.combinations(range(self.d), self.scenario.num_shared)
        ]
        if self.scenario.selection.coordinated:
            return [np.tile(m, (self.k, 1)) for m in single]
        return [np.array(m) for m in itertools.product(single, repeat=self.k)]

    def _all_outcomes(self):
        """Chances of who is available, downloads and is heard, and of how many are asked for an upload."""
        scenario, everybody = self.scenario, range(self.k)
        availability, channel = scenario.availability, scenario.channel
        shares = np.ones(self.k)
        if availability is not None:
            shares = availability.shares(self.k, scenario.data.fleet_seed)
        losses = {
            direction: 1 - np.prod([1 - part.probability for part in parts if part.kind == "lossy"])
            for direction, parts in (("down", channel.down if channel else ()), ("up", channel.up if channel else ()))
        }
        for there in itertools.product((False, True), repeat=self.k):
            chance = np.prod([p if x else 1 - p for p, x in zip(shares, there, strict=True)])
            knows = availability is not None and availability.server_knows
            pool = [k for k in everybody if there[k]] if knows else list(everybody)
            sets = list(itertools.combinations(pool, min(scenario.num_participants, len(pool))))
            draws = [(a, b) for a in sets for b in sets] if scenario.uplink == "redrawn" else [(a, a) for a in sets]
            for down, up in draws:
                takers, senders = ([k for k in drawn if there[k]] for drawn in (down, up))
                for kept in _subsets(takers, losses["down"]):
                    for heard in _subsets(senders, losses["up"]):
                        share = chance / len(draws) * kept[0] * heard[0]
                        if share > 0:
                            yield share, (there, kept[1], heard[1], len(up))

    def _all_patterns(self):
        options = [[(1.0, ())]]
        for group in self.scenario.attacks:
            mask = group.byzantine_mask(self.k)
            options.append(list(_subsets(list(np.flatnonzero(mask)), 1 - group.probability)))
        for combination in itertools.product(*options):
            chance = np.prod([c for c, _ in combination])
            if chance > 0:
                yield chance, [set(members) for _, members in combination[1:]]

    def added(self, direction: str) -> float:
        links = self.scenario.channel
        parts = () if links is None else getattr(links, direction)
        total = 0.0
        for part in parts:
            if part.kind == "noisy":
                total += part.variance
            elif part.kind == "quantised":
                total += (2 * part.reach / 2**part.bits) ** 2 / 12
        return total

    def download(self, state, mask, takers):
        matrix, noise = np.eye(self.size), np.zeros((self.size, self.size))
        for k in takers:
            rows = self.block(k + 1)
            matrix[rows, rows] = np.diag(1 - mask[k])
            matrix[rows, self.block(0)] = np.diag(mask[k])
            noise[rows, rows] = self.added("down") * np.diag(mask[k])
        return matrix @ state @ matrix.T + state[0, 0] * noise

    def learning(self, there, attacking):
        """The map of E[Y Yᵀ] in which the clients learn one after the other, as a matrix."""
        availability = self.scenario.availability
        always = availability is None or availability.learns == "always"
        poisoned = [
            (group.scale, members)
            for group, members in zip(self.scenario.attacks, attacking, strict=True)
            if group.kind == "label-poisoning"
        ]
        key = (there if not always else True, tuple((s, tuple(sorted(m))) for s, m in poisoned))
        if key in self.learned:
            return self.learned[key]
        total = np.eye(self.size**2)
        for k in range(self.k):
            if not (always or there[k]):
                continue
            label = next((-scale for scale, members in poisoned if k in members), 1.0)
            step = np.zeros_like(total)
            for chance, x, noise in self.samples(k):
                matrix = self.learn(k, x, label, noise)
                step += chance * np.kron(matrix, matrix)
            total = step @ total
        self.learned[key] = total
        return total

    def samples(self, k: int):
        if self.scenario.learner.kind == "nlms":
            yield from self.polar_samples(k)
            return
        root = np.linalg.cholesky(self.fleet.covariances()[k])
        nodes = ((1 / 6, -(3**0.5)), (2 / 3, 0.0), (1 / 6, 3**0.5))
        deviation = self.fleet.noise_variance[k] ** 0.5
        for combination in itertools.product(nodes, repeat=self.d):
            chances, places = zip(*combination, strict=True)
            for noise in (-deviation, deviation):
                yield np.prod(chances) / 2, root @ np.array(places), noise

    def polar_samples(self, k: int):
        """Yield white inputs by squared length, which is exponential, and five directions."""
        variance, deviation = self.fleet.input_variance[k], self.fleet.noise_variance[k] ** 0.5
        step = 0.25
        for u in np.arange(-30.0, 5.0, step):
            chance = step * np.exp(u - np.exp(u)) / 10
            for angle in 2 * np.pi * np.arange(5) / 5:
                x = (2 * variance * np.exp(u)) ** 0.5 * np.array([np.cos(angle), np.sin(angle)])
                yield chance, x, deviation
                yield chance, x, -deviation

    def learn(self, k: int, x, label: float, noise: float):
        """Y after client k's step."""
        matrix, rows = np.eye(self.size), self.block(k + 1)
        learner, mu = self.scenario.learner, self.scenario.draw_stepsizes()[k]
        if learner.kind == "leaky-lms":
            matrix[rows, rows] -= mu * learner.leakage * np.eye(self.d)
        elif learner.kind == "nlms":
            mu = mu / (learner.regularisation + x @ x)
        matrix[rows, rows] -= mu * np.outer(x, x)
        matrix[rows, 0] += mu * x * label * (self.fleet.target @ x + noise)
        return matrix

    def upload(self, state, mask, heard, asked, attacking):
        matrix, own = np.eye(self.size), self.block(0)
        noise = np.zeros((self.size, self.size))
        for k in heard:
            pull = np.zeros((self.d, self.size))  # what arrives less the server's own
            pull[:, own], pull[:, self.block(k + 1)] = -np.eye(self.d), np.eye(self.d)
            variance, is_lost = self.added("up"), False
            for group, members in zip(self.scenario.attacks, attacking, strict=True):
                if k not in members:
                    continue
                if group.kind == "gaussian":
                    variance += group.variance
                elif group.kind == "constant-bias":
                    pull[:, 0] += group.bias
                elif group.kind == "sign-flip":
                    assert group.of == "update"
                    pull = -group.scale * pull
                elif group.kind == "drop-out":
                    is_lost = True
            if is_lost:
                continue
            matrix[own] += mask[k][:, None] * pull / asked
            noise[own, own] += variance * np.diag(mask[k]) / asked**2
        together = sum(
            np.outer(v, v) * group.variance
            for group, members in zip(self.scenario.attacks, attacking, strict=True)
            if group.kind == "colluding-gaussian"
            for i in range(self.d)
            for v in [np.eye(self.size)[1 + i] * sum(mask[k][i] for k in heard if k in members) / max(asked, 1)]
        )
        return matrix @ state @ matrix.T + state[0, 0] * (noise + together)


def enumerate_delayed(scenario: Scenario, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Do the same with delays: Y also has the uploads on their way, and a state says whose, when and their masks."""
    return _DelayedAtoms(scenario).curve(iterations)


class _DelayedAtoms(_Atoms):
    def __init__(self, scenario: Scenario) -> None:
        self.longest = scenario.delay.longest_delay()
        super().__init__(scenario)
        self.size += self.longest * self.k * self.d

    def slot(self, ago: int, k: int) -> slice:
        """Return the place of the upload that client k made some iterations ago."""
        return self.block(1 + ago * self.k + k)

    def curve(self, iterations: int) -> tuple[np.ndarray, np.ndarray]:
        start = np.zeros((self.size, self.size))
        start[0, 0] = 1.0
        # A state: the masks of this iteration, and (iterations ago, delay, client, masks) of each upload on its way
        states = {(index, ()): start / len(self.masks) for index in range(len(self.masks))}
        network, server = np.zeros(iterations), np.zeros(iterations)
        for n in range(iterations):
            server[n] = self.error(sum(states.values()), 0, np.eye(self.d))
            after: dict = {}
            for (index, pending), state in states.items():
                for chance, (there, down, up, _) in self.outcomes:
                    got = chance * self.download(state, self.masks[index], down)
                    for k in range(self.k):
                        error = self.error(got, k + 1, self.fleet.covariances()[k])
                        network[n] += (error + got[0, 0] * self.fleet.noise_variance[k]) / self.k
                    for also, attacking in self.patterns:
                        z = also * (self.learning(there, attacking) @ got.ravel()).reshape(got.shape)
                        uploads, variances = self.uploads(attacking)
                        withheld = set().union(
                            *(
                                members
                                for group, members in zip(self.scenario.attacks, attacking, strict=True)
                                if group.kind == "drop-out"
                            )
                        )
                        sent = [k for k in up if k not in withheld]
                        for (share, delays), new in itertools.product(self.delays(sent), range(len(self.masks))):
                            made = tuple((0, delay, k, new) for k, delay in delays)
                            left, matrix = self.arrive((*pending, *made), uploads)
                            extended = np.zeros((len(z) + len(variances),) * 2)
                            extended[: len(z), : len(z)] = z
                            extended[len(z) :, len(z) :] = z[0, 0] * np.diag(variances)
                            moved = share / len(self.masks) * matrix @ extended @ matrix.T
                            key = (new, left)
                            after[key] = after.get(key, 0.0) + moved
            states = after
        return network, server

    def delays(self, senders):
        """Chances of the delays of the uploads; those that are lost are left out."""
        delay = self.scenario.delay
        if delay.kind == "fixed":
            yield 1.0, [(k, delay.iterations) for k in senders]
            return
        law = [(delay.ratio**j * (1 - delay.ratio), j) for j in range(self.longest + 1)]
        law.append((delay.ratio ** (self.longest + 1), -1))
        for combination in itertools.product(law, repeat=len(senders)):
            chance = float(np.prod([c for c, _ in combination]))
            yield chance, [(k, j) for k, (_, j) in zip(senders, combination, strict=True) if j >= 0]

    def uploads(self, attacking):
        """Rows of what each client would upload, of Y and of noise, and the noise's variances."""
        groups = self.scenario.attacks
        variances = [self.added("up")] * (self.k * self.d)
        variances += [getattr(group, "variance", 0.0) for group in groups for _ in range((self.k + 1) * self.d)]
        rows = np.zeros((self.k, self.d, self.size + len(variances)))
        unit, own = np.eye(self.d), self.block(0)
        for k in range(self.k):
            rows[k, :, self.block(k + 1)] = unit
            rows[k, :, self.size + k * self.d :][:, : self.d] = unit
            for g, (group, members) in enumerate(zip(groups, attacking, strict=True)):
                if k not in members:
                    continue
                noise = self.size + (self.k + g * (self.k + 1)) * self.d
                if group.kind == "gaussian":
                    rows[k, :, noise + k * self.d :][:, : self.d] = unit
                elif group.kind == "colluding-gaussian":
                    rows[k, :, noise + self.k * self.d :][:, : self.d] = unit
                elif group.kind == "constant-bias":
                    rows[k, :, 0] += group.bias
                elif group.kind == "sign-flip":
                    assert group.of == "update"
                    rows[k, :, self.block(k + 1)] = -group.scale * unit
                    rows[k, :, own] = (1 + group.scale) * unit
        return rows, variances

    def arrive(self, pending, uploads):
        """Return the uploads still on their way, and the matrix of the next Y."""
        matrix = np.zeros((self.size, uploads.shape[-1]))
        matrix[: self.slot(1, 0).start, : self.size] = np.eye(self.size)[: self.slot(1, 0).start]
        own, unit = self.block(0), np.eye(self.size, uploads.shape[-1])
        due = [upload for upload in pending if upload[0] == upload[1]]
        left = tuple((ago + 1, *rest) for ago, *rest in pending if ago < rest[0])
        for ago, age, k, mask in due:
            row = uploads[k] if ago == 0 else unit[self.slot(ago, k)]
            together = self.scenario.delay.grouping == "together"
            count = sum(together or other[1] == age for other in due)
            weight = self.scenario.delay.weight**age / count
            matrix[own] += weight * self.masks[mask][k][:, None] * (row - unit[own])
        for ago, _, k, _ in left:
            matrix[self.slot(ago, k)] = uploads[k] if ago == 1 else unit[self.slot(ago - 1, k)]
        return left, matrix


def _subsets(members, lost: float):
    for kept in itertools.product((False, True), repeat=len(members)):
        chance = np.prod([1 - lost if x else lost for x in kept]) if members else 1.0
        yield float(chance), [m for m, x in zip(members, kept, strict=True) if x]


def enumerate_server_held(scenario: Scenario, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Do the same where clients hold no model: Y = (1, w, m_1, …, m_K) with m_k what client k sends."""
    return _ServerAtoms(scenario).curve(iterations)


class _ServerAtoms(_Atoms):
    def curve(self, iterations: int) -> tuple[np.ndarray, np.ndarray]:
        state = np.zeros((self.size, self.size))
        state[0, 0] = 1.0
        network, server = np.zeros(iterations), np.zeros(iterations)
        traffic = self.scenario.algorithm.traffic(self.scenario)
        for n in range(iterations):
            server[n] = self.error(state, 0, np.eye(self.d))
            network[n] = np.mean(
                [
                    self.error(state, 0, r) + v
                    for r, v in zip(self.fleet.covariances(), self.fleet.noise_variance, strict=True)
                ]
            )
            if count := traffic.exchanges_in(n):
                state = self.exchange(state, count)
        return network, server

    def exchange(self, state, count: int):
        sets = list(itertools.combinations(range(self.k), count))
        after = np.zeros_like(state)
        for chosen in sets:
            for chance, attacking in self.patterns:
                x = state
                for k in chosen:
                    x = self.received(x, k, attacking)
                matrix = np.eye(self.size)
                matrix[self.block(0), self.block(0)] = 0.0
                for k in chosen:
                    matrix[self.block(0), self.block(k + 1)] += np.eye(self.d) / count
                after += chance / len(sets) * matrix @ x @ matrix.T
        return after

    def received(self, state, k: int, attacking):
        """Replace m_k, averaged over the samples of client k and its attack's noise."""
        own = self.block(k + 1)
        groups = [g for g, members in zip(self.scenario.attacks, attacking, strict=True) if k in members]
        after = np.zeros_like(state)
        for chance, x, noise in self.samples(k):
            update = np.zeros((self.d, self.size))
            label = -groups[0].scale if groups and groups[0].kind == "label-poisoning" else 1.0
            mu = self.scenario.draw_stepsizes()[k]
            update[:, self.block(0)] = -mu * np.outer(x, x)
            update[:, 0] = mu * x * label * (self.fleet.target @ x + noise)
            base, variance = np.zeros_like(update), 0.0
            base[:, self.block(0)] = np.eye(self.d)
            for group in groups:
                if group.kind == "gaussian":
                    variance = group.variance
                elif group.kind == "constant-bias":
                    update[:, 0] += group.bias
                elif group.kind == "sign-flip" and group.of == "update":
                    update = -group.scale * update
                elif group.kind == "sign-flip":
                    update = -group.scale * (base + update) - base
            matrix, loads = np.eye(self.size), np.zeros_like(state)
            matrix[own] = base + update
            loads[own, own] = variance * np.eye(self.d)
            after += chance * (matrix @ state @ matrix.T + state[0, 0] * loads)
        return after
