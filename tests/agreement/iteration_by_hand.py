"""Simulate an open iteration with plain NumPy, from its definitions alone: no code is shared with the engine.

    stream → availability → participants → masks → channel down → learner → attacks → channel up → delay → rule

All trials advance together: arrays are (trials, clients, entries). ``python tests/agreement/iteration_by_hand.py 40``
compares that many randomly drawn systems with ``psofed.simulate`` and, where it applies, ``psofed.predict``.
"""

import sys
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from psofed import (
    Data,
    Links,
    PsofedError,
    Scenario,
    Selection,
    attacks,
    availabilities,
    channels,
    delays,
    learners,
    simulate,
    streams,
)
from psofed.common.per_client import Uniform
from psofed.fleet.fleet import draw_fleet

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass
class Iteration:
    """Everything that one run of all trials remembers."""

    scenario: Scenario
    trials: int
    rng: np.random.Generator
    input_variance: Array
    noise_variance: Array
    stepsize: Array
    share: Array
    target: Array
    past: list[tuple[Array, Array, NDArray[np.int64]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        clients, dimension = self.scenario.num_clients, self.scenario.dimension
        self.shape = (self.trials, clients, dimension)
        self.server = np.zeros((self.trials, dimension))
        self.models = np.zeros(self.shape)
        self.offsets = self.rng.integers(0, dimension, (self.trials, clients))
        if self.scenario.selection.coordinated:
            self.offsets[:] = self.offsets[:, :1]
        self.awake: Flags | None = None
        self.line: Array | None = None
        self.memory = np.broadcast_to(np.eye(dimension), (*self.shape, dimension)).copy()
        if self.scenario.learner.kind == "rls":
            self.memory /= self.scenario.learner.initial

    def run(self) -> tuple[Array, Array]:
        """Return the network MSE and the server's squared deviation, shape (trials, iterations)."""
        errors, deviations = [], []
        mask = self.draw_mask(0)
        for n in range(self.scenario.iterations):
            deviations.append(np.sum((self.server - self.target) ** 2, axis=-1))
            inputs, clean = self.draw_sample()
            available = self.draw_availability(n)
            asked = self.draw_participants(available)
            received, lost = self.transmit("down", np.broadcast_to(self.server[:, None], self.shape), mask)
            downloads = (asked & available & ~lost)[..., None] & mask
            self.models = np.where(downloads, received, self.models)
            errors.append(np.mean((clean - np.sum(self.models * inputs, axis=-1)) ** 2, axis=1))
            attackers = self.draw_attackers()
            self.learn(inputs, self.poison(clean, attackers), self.learners(available))
            mask = self.draw_mask(n + 1)
            if self.scenario.uplink == "redrawn":
                asked = self.draw_participants(available)
            sent, silent = self.lie(attackers)
            sent, lost = self.transmit("up", sent, mask)
            self.aggregate(sent, mask, asked, asked & available & ~lost & ~silent)
        return np.stack(errors, axis=1), np.stack(deviations, axis=1)

    def draw_sample(self) -> tuple[Array, Array]:
        """Draw every client's input, and the output y = wᵀx + ν."""
        deviation = np.sqrt(self.input_variance)[None, :, None]
        stream, data = self.scenario.data.stream, self.scenario.data
        dimension = self.shape[2]
        if stream.kind == "delay-line":
            rho = stream.pole
            if self.line is None:  # the stationary state, oldest value last
                self.line = self.correlated(rho) * deviation
            else:
                fresh = rho * self.line[..., :1] + np.sqrt(1 - rho**2) * deviation * self.rng.standard_normal(
                    (*self.shape[:2], 1)
                )
                self.line = np.concatenate([fresh, self.line[..., : dimension - 1]], axis=-1)
            inputs = self.line
        else:
            inputs = self.correlated(data.input_correlation) * deviation
        noise = np.sqrt(self.noise_variance) * self.rng.standard_normal(self.shape[:2])
        return inputs, inputs @ self.target + noise

    def correlated(self, rho: float) -> Array:
        """Draw normals of covariance ρ^|i − j|."""
        values = self.rng.standard_normal(self.shape)
        for i in range(1, self.shape[2]):
            values[..., i] = rho * values[..., i - 1] + np.sqrt(1 - rho**2) * values[..., i]
        return values

    def draw_availability(self, n: int) -> Flags:
        """Draw who is there."""
        part, clients = self.scenario.availability, self.shape[1]
        chance = self.rng.random(self.shape[:2])
        if part is None:
            return np.ones(self.shape[:2], dtype=bool)
        if part.kind == "schedule":
            now = (n / part.period + np.arange(clients) / clients) % 1.0 < part.share - 1e-12
            return np.broadcast_to(now, self.shape[:2])
        if part.kind == "markov" and self.awake is not None:
            leave = 1.0 / part.mean_time
            enter = leave * self.share / np.maximum(1.0 - self.share, 1e-300)
            self.awake = np.where(self.awake, chance >= leave * (self.share < 1), chance < enter)
        else:
            self.awake = chance < self.share
        return self.awake

    def draw_participants(self, available: Flags) -> Flags:
        """Draw |S_n| clients uniformly from the available ones, or from all."""
        part = self.scenario.availability
        keys = self.rng.random(self.shape[:2])
        if part is not None and part.server_knows:
            keys = np.where(available, keys, 2.0)
        drawn = np.argsort(np.argsort(keys, axis=1), axis=1) < self.scenario.num_participants
        return drawn & (keys < 2.0)

    def learners(self, available: Flags) -> Flags:
        part = self.scenario.availability
        return available if part is not None and part.learns == "available" else np.ones_like(available)

    def draw_mask(self, n: int) -> Flags:
        """Draw S_{k,n}, M of D entries."""
        selection, shared = self.scenario.selection, self.scenario.num_shared
        dimension = self.shape[2]
        if selection.pattern.kind == "round-robin":
            place = (np.arange(dimension) - self.offsets[..., None] - n * shared) % dimension
            return place < shared
        keys = self.rng.random(self.shape)
        if selection.coordinated:
            keys[:] = keys[:, :1]
        return np.argsort(np.argsort(keys, axis=-1), axis=-1) < shared

    def learn(self, inputs: Array, outputs: Array, who: Flags) -> None:
        """Take each client's step from its model after the download."""
        learner, v = self.scenario.learner, self.models
        error = outputs - np.sum(v * inputs, axis=-1)
        mu = self.stepsize[None, :, None]
        step = inputs * error[..., None]
        if learner.kind == "nlms":
            step = step / (learner.regularisation + np.sum(inputs**2, axis=-1, keepdims=True))
        elif learner.kind == "leaky-lms":
            step = step - learner.leakage * v
        elif learner.kind == "sign-lms":
            step = inputs * np.sign(error)[..., None]
        elif learner.kind == "rls":
            seen = np.einsum("tkij,tkj->tki", self.memory, inputs)
            gain = seen / (learner.forgetting + np.sum(inputs * seen, axis=-1, keepdims=True))
            after = (self.memory - gain[..., None] * seen[..., None, :]) / learner.forgetting
            self.memory = np.where(who[..., None, None], after, self.memory)
            step, mu = gain * error[..., None], np.ones(1)
        self.models = np.where(who[..., None], v + mu * step, v)

    def draw_attackers(self) -> list[Flags]:
        """Draw, for every group, which of its clients attack in this iteration."""
        drawn = []
        for group in self.groups():
            members = np.zeros(self.shape[1], dtype=bool)
            members[list(group.clients) if group.clients else range(group.num_byzantine)] = True
            drawn.append(members & (self.rng.random(self.shape[:2]) < group.probability))
        return drawn

    def groups(self) -> tuple:
        attack = self.scenario.attack
        return () if attack is None else tuple(getattr(attack, "groups", None) or (attack,))

    def poison(self, outputs: Array, attackers: list[Flags]) -> Array:
        for group, active in zip(self.groups(), attackers, strict=True):
            if group.kind == "label-poisoning":
                outputs = np.where(active, -group.scale * outputs, outputs)
        return outputs

    def lie(self, attackers: list[Flags]) -> tuple[Array, Flags]:
        """Return what every client would upload, and who sends nothing."""
        sent, silent = self.models.copy(), np.zeros(self.shape[:2], dtype=bool)
        server = self.server[:, None]
        for group, active in zip(self.groups(), attackers, strict=True):
            clean, kind = self.models, group.kind
            if kind == "gaussian":
                lies = clean + np.sqrt(group.variance) * self.rng.standard_normal(self.shape)
            elif kind == "colluding-gaussian":
                common = self.rng.standard_normal((self.trials, 1, self.shape[2]))
                lies = clean + np.sqrt(group.variance) * common
            elif kind == "constant-bias":
                lies = clean + group.bias
            elif kind == "scaled-update":
                lies = server + group.scale * (clean - server)
            elif kind == "sign-flip":
                lies = -group.scale * clean if group.of == "model" else server - group.scale * (clean - server)
            else:
                lies = clean
                silent |= active & (kind == "drop-out")
            sent = np.where(active[..., None], lies, sent)
        return sent, silent

    def transmit(self, direction: str, values: Array, mask: Flags) -> tuple[Array, Flags]:
        """Send values through the links of one direction, in series; also return whose message is lost."""
        links = self.scenario.channel
        lost = np.zeros(self.shape[:2], dtype=bool)
        for part in getattr(links, direction) if links is not None else ():
            if part.kind == "noisy":
                values = values + np.sqrt(part.variance) * self.rng.standard_normal(self.shape)
            elif part.kind == "lossy":
                lost |= self.rng.random(self.shape[:2]) < part.probability
            elif part.kind == "quantised":
                values = self.quantise(part, values)
            elif part.kind == "private":
                update = np.where(mask, values - self.server[:, None], 0.0)
                norm = np.sqrt(np.sum(update**2, axis=-1, keepdims=True))
                update = update * np.minimum(1.0, part.clip / np.maximum(norm, 1e-300))
                noise = part.multiplier * part.clip * self.rng.standard_normal(self.shape)
                values = self.server[:, None] + update + noise
        return values, lost

    def quantise(self, part: object, values: Array) -> Array:
        """Round to one of 2^bits mid-rise levels over [−reach, reach]."""
        levels, reach = 2**part.bits, part.reach
        width = 2 * reach / levels
        chance = self.rng.random(self.shape)
        if part.rounding == "dithered":
            dither = width * (chance - 0.5)
            place = np.clip(np.floor((values + dither + reach) / width), 0, levels - 1)
            return -reach + (place + 0.5) * width - dither
        place = (values + reach) / width - 0.5  # in units of levels
        below = np.floor(place)
        place = np.clip(below + (chance < place - below), 0, levels - 1)
        return -reach + (place + 0.5) * width

    def aggregate(self, sent: Array, mask: Flags, asked: Flags, arrives: Flags) -> None:
        """Move the server's model by what arrives in this iteration."""
        delay, server = self.scenario.delay, self.server[:, None]
        is_median = self.scenario.aggregation.kind == "median"  # all entries being shared
        if delay is None:
            updates = np.where(mask & arrives[..., None], sent - server, 0.0)
            if is_median:
                self.move_to_median(np.where(arrives[..., None], sent - server, np.nan), asked.sum(axis=1))
                return
            count = np.maximum(asked.sum(axis=1), 1)[:, None]
            self.server = self.server + updates.sum(axis=1) / count
            return
        longest, late = self.draw_delay()
        self.past.append((sent, mask, np.where(arrives, late, -1)))
        self.past = self.past[-(longest + 1) :]
        moved, counts = np.zeros_like(self.server), np.zeros((self.trials, 1))
        updates = []
        for age, (values, shared, lateness) in enumerate(reversed(self.past)):
            now = lateness == age
            updates.append(np.where(now[..., None], delay.weight**age * (values - server), np.nan))
            update = np.sum(np.where(shared & now[..., None], values - server, 0.0), axis=1) * delay.weight**age
            number = now.sum(axis=1)[:, None]
            counts = counts + number
            moved = moved + (update / np.maximum(number, 1) if delay.grouping == "by-delay" else update)
        if is_median:
            self.move_to_median(np.concatenate(updates, axis=1), counts[:, 0])
            return
        self.server = self.server + (moved if delay.grouping == "by-delay" else moved / np.maximum(counts, 1))

    def move_to_median(self, updates: Array, counted: Array) -> None:
        """Move by the median of the updates (trials, any, entries) that arrived, NaN for others.

        Missing ones of three that count stand for the server's own model; the result counts by those that arrived.
        """
        arrived = np.sum(~np.isnan(updates[..., 0]), axis=1)
        missing = np.minimum(3, counted) - arrived
        own = np.where(np.arange(3) < missing[:, None], 0.0, np.nan)[..., None]
        updates = np.concatenate([updates, np.broadcast_to(own, (self.trials, 3, updates.shape[2]))], axis=1)
        some = arrived > 0
        share = arrived[some] / counted[some]
        self.server[some] = self.server[some] + share[:, None] * np.nanmedian(updates[some], axis=1)

    def draw_delay(self) -> tuple[int, NDArray[np.int64]]:
        """Return the longest delay and that of every client's upload; one beyond the longest is −1, lost."""
        delay = self.scenario.delay
        if delay.kind == "fixed":
            return delay.iterations, np.full(self.shape[:2], delay.iterations)
        chance = self.rng.random(self.shape[:2])
        late = sum((chance < delay.ratio**j).astype(np.int64) for j in range(1, delay.longest + 2))
        return delay.longest, np.where(late > delay.longest, -1, late)


def simulate_by_hand(scenario: Scenario, trials: int, seed: int) -> tuple[Array, Array]:
    """Return network MSE and server MSD of every trial and iteration."""
    data = scenario.data
    fleet = draw_fleet(scenario)
    part = scenario.availability
    share = part.shares(scenario.num_clients, data.fleet_seed) if part is not None else np.ones(1)
    run = Iteration(
        scenario, trials, np.random.default_rng(seed),
        fleet.input_variance, fleet.noise_variance, scenario.draw_stepsizes(), np.asarray(share), fleet.target,
    )  # fmt: skip
    return run.run()


def draw_system(seed: int) -> Scenario:
    """Draw a small system from the whole product of kinds and options."""
    rng = np.random.default_rng([24, seed])
    clients, dimension = int(rng.integers(3, 8)), int(rng.integers(2, 5))

    def chosen(default: object, *others: object, chance: float = 0.5) -> object:
        return default if rng.random() > chance else others[rng.integers(len(others))]

    def per_client(low: float, high: float) -> object:
        return (float(rng.uniform(low, high)), tuple(rng.uniform(low, high, clients)), Uniform(low, high))[
            rng.integers(3)
        ]

    presence = {
        "server_knows": bool(rng.random() < 0.5), "learns": str(rng.choice(["always", "available"])),
    }  # fmt: skip
    share = float(rng.uniform(0.2, 0.8))

    def links(*more: object) -> tuple[object, ...]:
        kinds = [
            channels.Noisy(variance=0.05), channels.Lossy(probability=0.3),
            channels.Quantised(bits=int(rng.integers(1, 5)), reach=float(rng.uniform(0.3, 2.0))),
            channels.Quantised(bits=int(rng.integers(1, 5)), reach=1.0, rounding="stochastic"), *more,
        ]  # fmt: skip
        return tuple(kinds[i] for i in rng.permutation(len(kinds))[: rng.integers(1, 3)])

    late = {"weight": float(rng.choice([0.0, 0.5, 1.0])), "grouping": str(rng.choice(["together", "by-delay"]))}
    order = [int(k) for k in rng.permutation(clients)]
    lies = [
        lambda who: attacks.Gaussian(clients=who, probability=0.5, variance=0.3),
        lambda who: attacks.ColludingGaussian(clients=who, probability=0.5, variance=0.3),
        lambda who: attacks.ConstantBias(clients=who, probability=0.5, bias=0.4),
        lambda who: attacks.SignFlip(clients=who, probability=0.5, of=str(rng.choice(["model", "update"]))),
        lambda who: attacks.ScaledUpdate(clients=who, probability=0.5, scale=1.5),
        lambda who: attacks.LabelPoisoning(clients=who, probability=0.5, scale=0.5),
        lambda who: attacks.DropOut(clients=who, probability=0.5),
    ]
    groups = [lies[i](order[j : j + 1]) for j, i in enumerate(rng.permutation(len(lies))[: rng.integers(0, 3)])]
    return Scenario(
        num_clients=clients, dimension=dimension, num_shared=int(rng.integers(1, dimension + 1)),
        num_participants=int(rng.integers(1, clients + 1)), iterations=60, stepsize=per_client(0.05, 0.2),
        uplink=str(rng.choice(["same", "redrawn"])),
        selection=Selection(
            pattern=str(rng.choice(["random", "round-robin"])), coordinated=bool(rng.random() < 0.5)
        ),
        learner=chosen(
            learners.LMS(), learners.NLMS(regularisation=float(rng.choice([0.0, 0.1]))),
            learners.LeakyLMS(leakage=0.2), learners.SignLMS(), learners.RLS(forgetting=0.9, initial=0.5),
        ),
        data=Data(
            input_variance=per_client(0.3, 1.2), noise_variance=per_client(0.01, 0.1),
            fleet_seed=seed, stream=chosen(streams.Independent(), streams.DelayLine(pole=0.6), chance=0.25),
        ),
        availability=chosen(
            None, availabilities.Bernoulli(probability=per_client(0.1, 0.9), **presence),
            availabilities.Markov(probability=share, mean_time=4.0, **presence),
            availabilities.Schedule(period=int(rng.integers(2, 9)), share=share, **presence), chance=0.7,
        ),
        channel=chosen(
            None, Links(up=links(channels.Private(clip=0.3, multiplier=0.5))), Links(down=links()),
            Links(up=links(channels.Private(clip=0.3, multiplier=0.5)), down=links()), chance=0.6,
        ),
        delay=chosen(
            None, delays.Fixed(iterations=int(rng.integers(1, 5)), **late),
            delays.Geometric(ratio=0.6, longest=int(rng.integers(1, 6)), **late),
        ),
        attack=(groups or [None])[0] if len(groups) < 2 else groups,
    )  # fmt: skip


def deviations(scenario: Scenario, trials: int, seed: int) -> dict[str, float]:
    """Return by how many standard errors ours and the prediction differ from the simulation by hand."""
    ours = simulate(scenario, trials=trials, seed=seed, keep_trials=True).trial_curves
    found = {}
    for metric, by_hand in zip(("network_mse", "server_msd"), simulate_by_hand(scenario, trials, seed), strict=True):
        for part, where in (("early", slice(1, 12)), ("late", slice(-20, None))):
            both = [curve[:, where].mean(axis=1) for curve in (ours[metric], by_hand)]
            error = np.hypot(*(each.std(ddof=1) / np.sqrt(trials) for each in both))
            difference = both[0].mean() - both[1].mean()
            found[f"{metric}, {part}"] = difference / error if error > 0.0 else np.sign(difference)
    return found


def main(number: int, first: int = 0, trials: int = 4000) -> None:
    """Compare that number of random systems, and print the largest deviations of each."""
    for seed in range(first, first + number):
        try:
            scenario = draw_system(seed)
        except PsofedError as refusal:
            print(seed, "refused:", refusal)
            continue
        found = deviations(scenario, trials, seed)
        worst = max(abs(z) for z in found.values())
        print(seed, "DIFFERS" if worst > 4 else "", {name: round(float(z), 1) for name, z in found.items()}, flush=True)
        if worst > 4:
            print(scenario.to_toml() if hasattr(scenario, "to_toml") else scenario)


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
