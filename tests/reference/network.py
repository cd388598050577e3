"""Availability, channels, delays and groups of attackers written literally, on the draws of the fast engine."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled
from psofed.engine.normals import normal_pair
from psofed.engine.streams import Stream, make_stream
from psofed.fleet import draw_fleet
from psofed.parts.contexts import Departure, Moment, Presence, Sample, Transmission
from psofed.parts.network import Channel
from psofed.parts.part import call_with_memory
from psofed.parts.plain import LARGEST, corrupt_uploads
from psofed.scenario import Scenario
from reference.draws import draw_uniforms
from reference.shocks import Shocks, draw_shocks


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Uploads that reach the server in an iteration.

    Attributes
    ----------
    uploads : array (A, D)
        As the rule sees them; NaN where an entry was not sent.
    clients, ages : int arrays (A,)
        Whose they are, and how long they took.
    """

    uploads: FloatArray
    clients: NDArray[np.int64]
    ages: NDArray[np.int64]


@dataclass(eq=False)
class LiteralNetwork:
    """The network of one trial, in plain Python."""

    scenario: Scenario
    seed: int
    trial: int
    numbers: int | None = None  # in an upload, where these are not the model's entries
    _pending: list[tuple[int, int, int, FloatArray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.available: NDArray[np.bool_] = self._draw_availability()
        links, clients = self.scenario.channel, self.scenario.num_clients
        self._channels: dict[str, tuple[Channel, ...]] = {
            "up": () if links is None else links.up,
            "down": () if links is None else links.down,
        }
        self._memories: dict[tuple[str, int], FloatArray] = {
            (direction, place): np.zeros((clients, channel.memory_size(self._entries(direction))))
            for direction, channels in self._channels.items()
            for place, channel in enumerate(channels)
        }

        delay = self.scenario.delay
        size = 0 if delay is None else delay.memory_size(self.scenario.dimension)
        self._delay_memory: FloatArray = np.zeros((clients, size))

    def _entries(self, direction: str) -> int:
        return self.numbers if self.numbers is not None and direction == "up" else self.scenario.dimension

    def _stream(self, source: str, index: int = 0) -> Stream:
        return make_stream(self.seed, source, [self.trial], index)

    def _draw_availability(self) -> NDArray[np.bool_]:
        scenario, clients = self.scenario, self.scenario.num_clients
        out = np.ones((scenario.iterations, clients), np.bool_)
        if scenario.availability is None:
            return out
        shares = scenario.availability.shares(clients, scenario.data.fleet_seed)
        rows = scenario.iterations + 1  # the first is drawn once for each client
        uniforms = draw_uniforms(self._stream("availability"), 0, rows * clients).reshape(rows, clients)
        memory = np.zeros((clients, scenario.availability.memory_size(scenario.dimension)))
        for n in range(scenario.iterations):
            for k in range(clients):
                before = bool(out[n - 1, k]) if n else False
                presence = Presence(
                    n, k, clients, float(shares[k]), float(uniforms[n + 1, k]), float(uniforms[0, k]), before
                )
                out[n, k] = call_with_memory(scenario.availability.is_available, presence, memory[k])
        return out

    def draw_participants(self, n: int, everyone: NDArray[np.bool_], source: str) -> NDArray[np.int64]:
        """Return the clients that are asked in iteration n; `everyone` (K,) marks those drawn from all clients."""
        scenario = self.scenario
        if scenario.availability is None or not scenario.availability.server_knows:
            return np.flatnonzero(everyone)
        return np.sort(self.draw_available(n, scenario.num_participants, source))

    def draw_available(self, n: int, most: int, source: str) -> NDArray[np.int64]:
        """Return at most `most` clients that are available in iteration n, in the order in which they are drawn."""
        there = np.flatnonzero(self.available[n]).tolist()
        words = self._stream(source).words(n * most, most)[:, 0]
        chosen = [_take(there, place, word) for place, word in enumerate(words[: len(there)].tolist())]
        return np.array(chosen, np.int64)

    def reached(self, n: int, clients: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the clients are available in iteration n."""
        return np.asarray(self.available[n, clients])

    def learns(self, n: int, k: int) -> bool:
        """Tell whether client k makes a step in iteration n."""
        availability = self.scenario.availability
        return availability is None or availability.learns == "always" or bool(self.available[n, k])

    def transmit(self, direction: str, n: int, k: int, message: FloatArray, receiver: FloatArray) -> FloatArray:
        """Return a message (D,), NaN where an entry is not sent, as it arrives."""
        values = message.copy()
        entries = np.flatnonzero(~np.isnan(message))
        for place, channel in enumerate(self._channels[direction]):
            if np.isnan(values[entries]).all():
                break
            stream = self._stream(f"channel_{direction}", place)
            own, normals, uniforms = draw_channel_numbers(stream, n, k, self.scenario.num_clients, message.size)
            out = np.empty(entries.size)
            nothing = np.zeros(0)
            seen = Transmission(
                values[entries], receiver[entries], entries, k, n,
                normals[entries] if channel.draws == "normals" else nothing,
                uniforms[entries] if channel.draws == "uniforms" else nothing, own,
            )  # fmt: skip
            call_with_memory(channel.transmit, seen, self._memories[direction, place][k], out)
            values[entries] = out
        return values

    def pass_time(self, n: int, clients: NDArray[np.int64], uploads: FloatArray, server: FloatArray) -> Arrivals:
        """Send uploads (P, D) on their way and return those that arrive; all at once without a delay."""
        delay = self.scenario.delay
        if delay is None:
            return Arrivals(uploads, clients, np.zeros(len(clients), np.int64))
        stream, count = self._stream("delay"), self.scenario.num_clients
        for k, row in zip(clients.tolist(), uploads, strict=True):
            uniform = float(draw_uniforms(stream, n * count + k, 1)[0])
            age = call_with_memory(delay.duration, Departure(k, n, uniform), self._delay_memory[k])
            if age >= 0 and (np.abs(row) <= LARGEST).any():
                self._pending.append((n + age, age, k, row))
        due = [upload for upload in self._pending if upload[0] == n]
        self._pending = [upload for upload in self._pending if upload[0] > n]
        ages = np.array([age for _, age, _, _ in due], np.int64)
        rows = np.array([row for *_, row in due]).reshape(len(due), server.size)
        rows = server + delay.weight ** ages[:, None] * (rows - server)
        return Arrivals(rows, np.array([k for _, _, k, _ in due], np.int64), ages)

    def weigh_by_delay(self, arrivals: Arrivals, server: FloatArray) -> FloatArray:
        """Return the uploads with each delay's updates scaled by |A_n| / |A_{n,l}|, where they are grouped."""
        delay = self.scenario.delay
        if delay is None or delay.grouping == "together" or not len(arrivals.ages):
            return arrivals.uploads
        sizes = np.array([np.sum(arrivals.ages == age) for age in arrivals.ages])
        return server + (len(arrivals.ages) / sizes)[:, None] * (arrivals.uploads - server)


@dataclass(eq=False)
class LiteralGroups:
    """The groups of attackers of one trial, in plain Python."""

    scenario: Scenario
    seed: int
    trial: int
    dimension: int

    def __post_init__(self) -> None:
        fleet, scenario = draw_fleet(self.scenario), self.scenario
        self.shocks: list[Shocks] = [
            draw_shocks(
                attack, make_stream(self.seed, "attack", [self.trial], group), fleet.byzantine_mask(attack),
                scenario.iterations, self.dimension,
            )
            for group, attack in enumerate(scenario.attacks)
        ]  # fmt: skip
        clients = scenario.num_clients
        self._memories = [np.zeros(attack.group_memory_size(clients, self.dimension)) for attack in scenario.attacks]
        self._client_memories = [np.zeros((clients, attack.memory_size(self.dimension))) for attack in scenario.attacks]

    def _members(self, group: int, n: int) -> dict[str, NDArray[np.int64]]:
        """Return the Byzantine clients of a group and of all groups in iteration n."""
        everyone = np.any([shocks.byzantine[n] for shocks in self.shocks], axis=0)
        own = self.shocks[group].byzantine[n]
        return {"group": np.flatnonzero(own), "byzantine": np.flatnonzero(everyone)}

    def mean_over_honest(self, errors: FloatArray) -> FloatArray:
        """Return the mean (N,) of the clients' errors (N, K), without those that are Byzantine at that time."""
        byzantine = np.zeros(errors.shape, bool)
        for shocks in self.shocks:
            byzantine |= shocks.byzantine[: len(errors)]
        honest = ~byzantine
        return (errors * honest).sum(axis=1) / np.maximum(honest.sum(axis=1), 1)

    def poison(self, n: int, k: int, x: FloatArray, y: float) -> tuple[FloatArray, float]:
        """Return the sample that client k learns from in iteration n."""
        for place, (attack, shocks) in enumerate(zip(self.scenario.attacks, self.shocks, strict=True)):
            if attack.defines("poison") and shocks.attacking[n, k]:
                sample = Sample(x.copy(), y, shocks.normals[n, k], k, n, **self._members(place, n))
                x, y = call_with_memory(attack.poison, sample, self._client_memories[place][k])
        return x, y

    def remember(self, n: int, models: FloatArray) -> None:
        """Let attackers that remember models see those (K, D) of their clients."""
        for place, (attack, shocks) in enumerate(zip(self.scenario.attacks, self.shocks, strict=True)):
            for k in range(len(models)) if attack.defines("remember") else ():
                if attack.byzantine_set == "redrawn" or shocks.byzantine[n, k]:
                    attack.remember(Moment(models[k].copy(), k, n), self._client_memories[place][k])

    def corrupt(self, n: int, clients: NDArray[np.int64], uploads: FloatArray, server: FloatArray) -> FloatArray:
        """Return the uploads (P, D) after all groups' attacks, each of which sees those before any."""
        received = uploads.copy()
        for place, (attack, shocks) in enumerate(zip(self.scenario.attacks, self.shocks, strict=True)):
            if attack.defines("poison"):
                continue
            attacking = shocks.attacking[n, clients]
            changed = corrupt_uploads(
                attack=attack, uploads=uploads, attacking=attacking, server=server, clients=clients, iteration=n,
                normals=shocks.normals[n, clients], common_normals=shocks.common_normals[n],
                num_clients=self.scenario.num_clients, memory=self._memories[place],
                client_memory=self._client_memories[place], **self._members(place, n),
            )  # fmt: skip
            received[attacking] = changed[attacking]
        return received


def _take(numbers: list[int], place: int, word: int) -> int:
    """Swap a number from `place` on to `place`, as the engine's shuffle does, and return it."""
    other = place + (((word >> 32) * (len(numbers) - place)) >> 32)
    numbers[place], numbers[other] = numbers[other], numbers[place]
    return numbers[place]


def draw_channel_numbers(
    stream: Stream, n: int, client: int, num_clients: int, dimension: int
) -> tuple[float, FloatArray, FloatArray]:
    """Return the random numbers of one message of one trial: of the message, normals and uniforms (D,) of entries."""
    words = stream.words((n * num_clients + client) * (dimension + 1), dimension + 1)[:, 0]
    uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
    normals = np.empty(dimension)
    _fill_normals(words[1:], normals)
    return float(uniforms[0]), normals, uniforms[1:]


@compiled
def _fill_normals(words: NDArray[np.uint64], out: FloatArray) -> None:
    for i in range(out.size):
        x, _ = normal_pair(words[i])
        out[i] = x
