"""PSO-Fed row by row: clients that learn from one named row at a time, as streams deliver them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.scenario import Selection
from psofed.simulation.online import OnlineFederation, online_scenario


class RowFederation:
    """Clients that learn together from single rows, which are mappings by feature name.

    An iteration ends when every client has learned a row in it, or when a client learns a second one; then models are
    exchanged. The update is that of :func:`psofed.simulate`.

    Parameters
    ----------
    clients : sequence of str
        Names of all clients.
    stepsize : float
        μ of w ← w + μ x (y − wᵀx): twice the learning rate of river's ``optim.SGD`` on its squared loss.
    features : sequence of str, optional
        Names of the inputs; by default those of the first row. An input that is missing later counts as 0.
    num_shared, num_participants, aggregation, pattern, coordinated
        As in :class:`psofed.sklearn.FederatedRegressor`.
    intercept_stepsize : float, optional
        Stepsize of the intercept, by default `stepsize`; 0 for none.
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
        self._options: dict[str, Any] = {
            "num_shared": num_shared,
            "num_participants": num_participants,
            "stepsize": stepsize,
            "aggregation": aggregation,
            "selection": Selection(pattern=pattern, coordinated=coordinated),
        }
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
