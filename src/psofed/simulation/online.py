"""PSO-Fed on rows that arrive from outside, one per client and iteration, computed by the engine.

Row n of each client belongs to iteration n, as in :func:`psofed.simulate` with your own data; the model of client k
follows the very recursion of trial 0 there. Rows may come in any pieces. An iteration is final once every client has
its row; rows of later iterations wait, and :attr:`OnlineFederation.models` shows what they would make of the models. So
one call with all rows and many calls with some give the same bits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.run import Run
from psofed.engine.samples import Chunk, TableSamples
from psofed.fleet import Fleet
from psofed.scenario import Scenario

_DIVERGED = 1e12


def online_scenario(
    num_clients: int,
    dimension: int,
    *,
    num_shared: int | None = None,
    num_participants: int | None = None,
    **fields: Any,
) -> Scenario:
    """Return a scenario in which everything is shared and everybody takes part, unless said otherwise."""
    return Scenario(
        num_clients=num_clients,
        dimension=dimension,
        num_shared=dimension if num_shared is None else num_shared,
        num_participants=num_clients if num_participants is None else num_participants,
        **fields,
    )


class OnlineFederation:
    """Clients that learn together from rows that are added.

    Parameters
    ----------
    scenario : Scenario
        K, D, M, |S_n|, the stepsize, the selection and the rule. Its data and its number of iterations are not used.
    seed : int
        Seed of participants and masks.

    Examples
    --------
    >>> federation = OnlineFederation(online_scenario(1, 1, stepsize=0.5), seed=0)
    >>> federation.add([np.array([[1.0], [1.0]])], [np.array([2.0, 2.0])])
    >>> federation.server  # 0 + 0.5 · 2 = 1, then 1 + 0.5 · 1
    array([1.5])
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.iteration: int = 0
        clients, dimension = scenario.num_clients, scenario.dimension
        self._models: FloatArray = np.zeros((clients, dimension))
        self._server: FloatArray = np.zeros(dimension)
        self._inputs: list[FloatArray] = [np.empty((0, dimension))] * clients
        self._targets: list[FloatArray] = [np.empty(0)] * clients
        self._latest: tuple[FloatArray, FloatArray] | None = None
        self._run: Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}  # compiled code and scratch are made again

    def add(self, inputs: Sequence[FloatArray], targets: Sequence[FloatArray], epochs: int = 1) -> None:
        """Add rows, (rows_k, D) and (rows_k,) for every client, and learn from those whose iteration is complete.

        With several `epochs` each client goes through its rows that often, and nothing waits.
        """
        self._latest = None
        for k, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            self._inputs[k] = np.concatenate([self._inputs[k], x])
            self._targets[k] = np.concatenate([self._targets[k], y])
        waiting = [len(y) for y in self._targets]
        if epochs > 1:
            self._commit(max(waiting) * epochs, epochs)
        else:
            self._commit(min(waiting))

    def finish(self) -> None:
        """Make all rows final that still wait for rows of other clients."""
        self._commit(self.num_waiting)

    def is_waiting(self, client: int) -> bool:
        """Whether the last row of a client waits for rows of other clients."""
        return len(self._targets[client]) > 0

    @property
    def has_diverged(self) -> bool:
        """Whether an entry of a model exceeds what a stable run comes near, as far as iterations are final."""
        return not np.abs(self._models).max() < _DIVERGED

    @property
    def num_waiting(self) -> int:
        """Iterations that have begun, and wait for rows of some client."""
        return max(len(y) for y in self._targets)

    @property
    def models(self) -> FloatArray:
        """The clients' models, (K, D), with all rows that were added."""
        return self._current()[0]

    @property
    def server(self) -> FloatArray:
        """The server's model, (D,), with all rows that were added."""
        return self._current()[1]

    def _current(self) -> tuple[FloatArray, FloatArray]:
        if self._latest is None:
            self._latest = self._advance(self.num_waiting, 1) if self.num_waiting else (self._models, self._server)
        return self._latest

    def _commit(self, count: int, epochs: int = 1) -> None:
        if count:
            self._models, self._server = self._advance(count, epochs)
            self._inputs = [x[count:] for x in self._inputs]
            self._targets = [y[count:] for y in self._targets]
            self.iteration += count
        self._latest = None

    def _advance(self, count: int, epochs: int) -> tuple[FloatArray, FloatArray]:
        """Return the models after `count` more iterations."""
        feed = _Feed(TableSamples(self._inputs, self._targets, epochs), self.iteration)
        if self._run is None:
            self._run = _make_run(self.scenario, self.seed, feed)
        run = self._run
        run.samples = feed
        # Errors are measured from a target of zero: a model is minus its error.
        run.set_models(-self._models, -self._server)
        end = self.iteration + count
        for first in range(self.iteration, end, run.chunk):
            run.advance(first, np.empty((min(run.chunk, end - first), 3, 1)))
        return -run.clients[:, :, 0], -run.server[0]


class _Feed:
    """Rows of a table whose first ones belong to iteration `begin`."""

    tests_on_next = True

    def __init__(self, table: TableSamples, begin: int) -> None:
        self._table, self._begin = table, begin
        self.bytes_per_iteration = table.bytes_per_iteration

    def chunk(self, first: int, count: int) -> Chunk:
        """Return the samples of iterations `first` … `first + count − 1`."""
        return self._table.chunk(first - self._begin, count)


def _make_run(scenario: Scenario, seed: int, feed: _Feed) -> Run:
    clients, dimension = scenario.num_clients, scenario.dimension
    fleet = Fleet(
        target=np.zeros(dimension),
        input_variance=np.ones(clients),
        noise_variance=np.zeros(clients),
        correlation=0.0,
        explicit_covariances=None,
    )
    return Run(scenario, fleet, seed, range(1), feed)
