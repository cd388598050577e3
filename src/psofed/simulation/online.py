"""PSO-Fed on rows that arrive from outside, in pieces or one by one, computed by the engine.

Row n of each client belongs to iteration n, as in :func:`psofed.simulate` with your own data; the model of client k
follows the very recursion of trial 0 there. Rows may come in any pieces. An iteration is final once every client has
its row; rows of later iterations wait, and :attr:`OnlineFederation.models` shows what they would make of the models. So
one call with all rows and many calls with some give the same bits.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.engine.run import Run
from psofed.engine.samples import TableSamples
from psofed.fleet import Fleet
from psofed.scenario import Scenario, Selection

_DIVERGED = 1e12


def online_scenario(num_clients: int, dimension: int, **fields: Any) -> Scenario:
    """Return a scenario in which everything is shared and everybody takes part, unless said otherwise (not None)."""
    everything = {"num_shared": dimension, "num_participants": num_clients}
    given = {name: value for name, value in fields.items() if value is not None}
    return Scenario(num_clients=num_clients, dimension=dimension, **(everything | given))


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
        samples = TableSamples(self._inputs, self._targets, epochs, self.iteration)
        run = self._run = self._run or Run(self.scenario, _no_fleet(self.scenario), self.seed, range(1), samples)
        run.samples = samples
        # Errors are measured from a target of zero: a model is minus its error.
        run.set_models(-self._models, -self._server)
        end = self.iteration + count
        for first in range(self.iteration, end, run.chunk):
            run.advance(first, np.empty((min(run.chunk, end - first), 3, 1)))
        return -run.clients[:, :, 0], -run.server[0]


def _no_fleet(scenario: Scenario) -> Fleet:
    """Return a fleet with a target of zero, of which nothing else is used: samples are given."""
    ones, zeros = np.ones(scenario.num_clients), np.zeros(scenario.num_clients)
    return Fleet(np.zeros(scenario.dimension), ones, zeros, correlation=0.0, explicit_covariances=None)


class RowFederation:
    """Clients that learn together from single rows, which are mappings by feature name.

    An iteration ends when every client has learned a row in it, or when a client learns a second one; then models are
    exchanged. Predictions use all rows. The update is that of :func:`psofed.simulate`.

    Parameters
    ----------
    clients : sequence of str
        Names of all clients.
    stepsize : float
        μ of w ← w + μ x (y − wᵀx). It is twice the learning rate of river's ``optim.SGD`` on its squared loss.
    features : sequence of str, optional
        Names of the inputs; by default those of the first row. An input that is missing later counts as 0.
    num_shared, num_participants, aggregation, pattern, coordinated
        See :class:`psofed.sklearn.FederatedRegressor`.
    intercept_stepsize : float, optional
        Stepsize of the intercept; by default `stepsize`, and 0 for none.
    seed : int
        Seed of participants and shared entries.

    Examples
    --------
    >>> federation = RowFederation(["north", "south"], stepsize=0.5, intercept_stepsize=0)
    >>> for station in ("north", "south"):
    ...     federation.learn(station, {"wind": 1.0}, 2.0)
    >>> federation.predict("north", {"wind": 3.0})
    3.0
    """

    def __init__(
        self,
        clients: Sequence[str],
        stepsize: float = 0.02,
        *,
        features: Sequence[str] | None = None,
        num_shared: int | None = None,
        num_participants: int | None = None,
        aggregation: Any = "mean",
        pattern: Any = "random",
        coordinated: bool = True,
        intercept_stepsize: float | None = None,
        seed: int = 0,
    ) -> None:
        self.clients: dict[str, int] = {name: k for k, name in enumerate(clients)}
        self._intercept = math.sqrt((stepsize if intercept_stepsize is None else intercept_stepsize) / stepsize)
        selection = Selection(pattern=pattern, coordinated=coordinated)
        self._options: dict[str, Any] = {"stepsize": stepsize, "aggregation": aggregation, "selection": selection}
        self._options |= {"num_shared": num_shared, "num_participants": num_participants}
        self._seed = seed
        self._features: dict[str, int] = {}
        self._learning: OnlineFederation | None = None
        if features is not None:
            self._begin(features)

    def weights(self, name: str | None = None) -> dict[str, float]:
        """Return the weights of a client's model by feature, or of the server's."""
        model = self._model(name)
        return {feature: float(model[i]) for feature, i in self._features.items()}

    def intercept(self, name: str | None = None) -> float:
        """Return the intercept of a client's model, or of the server's."""
        return self._intercept * float(self._model(name)[-1]) if self._intercept else 0.0

    def learn(self, name: str, x: Mapping[str, float], y: float) -> None:
        """Let a client learn from a row."""
        if self._learning is None:
            self._begin(tuple(x))
        assert self._learning is not None  # just made
        k, learning = self._place(name), self._learning
        if learning.is_waiting(k):
            learning.finish()
        row, none = self._row(x)[None], np.empty((0, self._size))
        rows = [row if j == k else none for j in range(len(self.clients))]
        learning.add(rows, [np.full(len(part), float(y)) for part in rows])

    def predict(self, name: str, x: Mapping[str, float]) -> float:
        """Predict with a client's own model; 0 before the first row."""
        return 0.0 if self._learning is None else float(self._model(name) @ self._row(x))

    @property
    def _size(self) -> int:
        return len(self._features) + bool(self._intercept)

    def _begin(self, features: Sequence[str]) -> None:
        self._features = {feature: i for i, feature in enumerate(features)}
        scenario = online_scenario(len(self.clients), self._size, **self._options)
        self._learning = OnlineFederation(scenario, self._seed)

    def _row(self, x: Mapping[str, float]) -> FloatArray:
        if unknown := [name for name in x if name not in self._features]:
            raise PsofedError(f"unknown feature {unknown[0]}; the features are {', '.join(self._features)}")
        row = np.zeros(self._size)
        for name, value in x.items():
            row[self._features[name]] = value
        if self._intercept:
            row[-1] = self._intercept
        return row

    def _place(self, name: str) -> int:
        if name not in self.clients:
            raise PsofedError(f"unknown client {name!r}; there are {', '.join(self.clients)}")
        return self.clients[name]

    def _model(self, name: str | None) -> FloatArray:
        if self._learning is None:
            return np.zeros(self._size)
        return self._learning.server if name is None else self._learning.models[self._place(name)]
