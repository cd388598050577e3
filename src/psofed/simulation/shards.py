"""One huge fleet on a Dask cluster: its clients are cut over the workers, the server stays here.

Each worker holds the models of some clients (:class:`FleetShard`) and lets them learn. In every iteration it gets the
values that its participants have downloaded, and returns those that they upload and those that the next participants
hold: 3 M numbers per participant, and one sum of squared errors per 65,536 clients. The bits are those of a run on one
machine.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.engine.frames.learner import make_learning
from psofed.engine.inputs import make_input_model
from psofed.engine.over_clients import SUM_BLOCK, learn_over_clients, make_client_lanes, mean_of
from psofed.engine.pso_fed_state import Exchanges
from psofed.engine.streams import make_stream
from psofed.fleet import draw_fleet
from psofed.scenario import Scenario

Places = NDArray[np.int64]


class FleetShard:
    """Some clients of one trial, on a worker.

    Parameters
    ----------
    scenario, seed, trial
        What is simulated.
    start, stop : int
        Numbers of the clients; `start` is a multiple of SUM_BLOCK.
    """

    def __init__(self, scenario: Scenario, seed: int, trial: int, start: int, stop: int) -> None:
        fleet = draw_fleet(scenario)
        self._data = make_stream(seed, "data", range(trial, trial + 1))
        inputs, stepsizes = make_input_model(fleet, draws=True), make_learning(scenario, 1).stepsizes
        self._lanes = make_client_lanes(inputs, stepsizes, fleet.target, self._data, range(start, stop))

    def read(self, clients: Places, entries: Places) -> FloatArray:
        """Return some entries of some clients' errors."""
        return np.asarray(self._lanes.models[entries, clients - self._lanes.first])

    def learn(
        self, n: int, downloads: tuple[Places, Places, FloatArray], wanted: tuple[Places, Places]
    ) -> tuple[FloatArray, FloatArray]:
        """Take what was downloaded, let all learn in iteration n, and return sums of squares and what is `wanted`."""
        clients, entries, values = downloads
        models = self._lanes.models
        models[entries, clients - self._lanes.first] = values
        learn_over_clients(n, 0, 0, models.shape[1], self._data, None, self._lanes)
        return self._lanes.sums.copy(), self.read(*wanted)


class ShardedLearning:
    """Learning of one trial's clients on the workers of a cluster, seen from the server.

    Parameters
    ----------
    client : distributed.Client
        Connection to the cluster.
    workers : list of str
        Addresses of the workers.
    shard : tuple
        Scenario, seed and trial.
    bounds : list of int
        Where each begins, and where the last ends.
    """

    def __init__(
        self, client: Any, workers: list[str], shard: tuple[Scenario, int, int], bounds: list[int]
    ) -> None:
        self._client, self._workers, self._bounds = client, workers, bounds
        self._name = uuid4().hex
        self._ask(_hold, [(*shard, *part) for part in pairwise(bounds)])
        self._exchange: Exchanges | None = None
        self._clients: FloatArray | None = None

    def start_chunk(self, exchange: Exchanges, clients: FloatArray) -> None:
        """Fetch what the first participants of a chunk hold."""
        self._exchange, self._clients = exchange, clients
        wanted = self._split(*_places(exchange.participants[0], exchange.downloaded[0]))
        self._note(wanted, self._ask(_read, wanted))

    def learn(self, n: int, t: int, learns: NDArray[np.uint8] | None) -> float:
        """Let all clients learn in iteration n, number `t` of its chunk, and return the network MSE."""
        exchange, clients = self._exchange, self._clients
        assert exchange is not None
        assert clients is not None
        downloaded = self._split(*_places(exchange.participants[t], exchange.downloaded[t]))
        places = [_places(exchange.uploaders[t], exchange.uploaded[t])]
        if t + 1 < len(exchange.participants):
            places.append(_places(exchange.participants[t + 1], exchange.downloaded[t + 1]))
        wanted = self._split(*map(np.concatenate, zip(*places, strict=True)))
        answers = self._ask(
            _learn,
            [(n, (k, i, clients[k, i, 0]), them) for (k, i), them in zip(downloaded, wanted, strict=True)],
        )
        self._note(wanted, [values for _, values in answers])
        return mean_of(np.concatenate([sums for sums, _ in answers]), self._bounds[-1])

    def close(self) -> None:
        """Let the workers forget the models."""
        from distributed import fire_and_forget

        with suppress(Exception):  # the cluster may be gone, and the models with it
            for worker in self._workers:
                fire_and_forget(self._client.submit(_forget, self._name, workers=[worker], pure=False))  # type: ignore[no-untyped-call]

    def _split(self, clients: Places, entries: Places) -> list[tuple[Places, Places]]:
        """Sort entries of clients by the worker that holds them."""
        here = [(clients >= start) & (clients < stop) for start, stop in pairwise(self._bounds)]
        return [(clients[mask], entries[mask]) for mask in here]

    def _ask(self, task: Callable[..., Any], arguments: list[Any]) -> list[Any]:
        try:
            calls = [
                self._client.submit(task, self._name, *given, workers=[worker], pure=False)
                for worker, given in zip(self._workers, arguments, strict=True)
            ]
            return [call.result() for call in calls]
        except Exception as error:
            raise PsofedError(
                f"A worker that holds part of the fleet was lost or failed ({type(error).__name__}: {error}); "
                "start the simulation again."
            ) from error

    def _note(self, places: list[tuple[Places, Places]], values: list[FloatArray]) -> None:
        assert self._clients is not None
        for (clients, entries), numbers in zip(places, values, strict=True):
            self._clients[clients, entries, 0] = numbers


# The shards that this process holds, as a worker.
_HELD: dict[str, FleetShard] = {}


def _hold(name: str, scenario: Scenario, seed: int, trial: int, start: int, stop: int) -> None:
    _HELD[name] = FleetShard(scenario, seed, trial, start, stop)


def _read(name: str, clients: Places, entries: Places) -> FloatArray:
    return _HELD[name].read(clients, entries)


def _learn(name: str, *arguments: Any) -> tuple[FloatArray, FloatArray]:
    return _HELD[name].learn(*arguments)


def _forget(name: str) -> None:
    _HELD.pop(name, None)


def cut_over_workers(
    executor: Executor | None, scenario: Scenario, seed: int
) -> Callable[[int], ShardedLearning] | None:
    """Return what cuts the clients of a trial over the workers of a Dask cluster; None if there is nothing to gain."""
    if type(executor).__module__.partition(".")[0] != "distributed":
        return None
    if scenario.availability is not None and scenario.availability.learns == "available":
        return None  # who learns would have to be sent, too
    client: Any = executor._client  # type: ignore[union-attr]  # it has no public name
    blocks = -(-scenario.num_clients // SUM_BLOCK)
    workers = sorted(client.nthreads())[:blocks]
    if len(workers) < 2:
        return None
    edges = [blocks * part // len(workers) * SUM_BLOCK for part in range(len(workers))]
    bounds = [*edges, scenario.num_clients]

    def start(trial: int) -> ShardedLearning:
        return ShardedLearning(client, workers, (scenario, seed, trial), bounds)

    return start


def _places(clients: NDArray[np.int32], entries: NDArray[np.int32]) -> tuple[Places, Places]:
    """Return the pairs (client, entry) of participants (P, 1) and their masks (P, M, 1)."""
    masks = entries[:, :, 0].astype(np.int64)
    return np.repeat(clients[:, 0].astype(np.int64), masks.shape[1]), masks.ravel()
