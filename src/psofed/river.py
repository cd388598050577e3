"""PSO-Fed for river: clients with ``learn_one`` and ``predict_one``. Needs river, ``pip install river``."""

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from psofed.common.errors import PsofedError
from psofed.simulation.online import RowFederation

if TYPE_CHECKING:
    Regressor = object  # river is not installed where types are checked
else:
    try:
        from river.base import Regressor
    except ImportError as _error:
        raise PsofedError(f"psofed.river needs river; install it with: pip install river ({_error})") from None

__all__ = ["FederatedClient", "RiverFederation"]


class RiverFederation(RowFederation):
    """Clients that learn together, each a river regressor: ``federation.client("north")``.

    See :class:`psofed.simulation.online.RowFederation` for its arguments. As everywhere in river, features may
    appear at any time; a new one starts with weight 0 in all models.
    """

    def learn(self, name: str, x: Mapping[str, float], y: float) -> None:
        """Let a client learn from a row."""
        self._grow(x)
        super().learn(name, x, y)

    def predict(self, name: str, x: Mapping[str, float]) -> float:
        """Predict with a client's own model; 0 before the first row."""
        return super().predict(name, {feature: value for feature, value in x.items() if feature in self._features})

    def fresh(self) -> "RiverFederation":
        """Return the same federation before its first row."""
        federation = copy.copy(self)
        if self._features:
            federation._begin(tuple(self._features))
        return federation

    def _grow(self, x: Mapping[str, float]) -> None:
        """Add the features that no model has yet."""
        old, added = self._learning, tuple(feature for feature in x if feature not in self._features)
        if old is None or not added:
            return
        old.finish()
        places = [*self._features.values(), *([-1] if self._intercept else [])]
        self._begin((*self._features, *added))
        assert self._learning is not None  # just made
        self._learning._models[:, places], self._learning._server[places] = old.models, old.server
        self._learning.iteration = old.iteration

    def client(self, name: str) -> "FederatedClient":
        """Return the regressor of a client."""
        return FederatedClient(self, name)


class FederatedClient(Regressor):
    """A client of a :class:`RiverFederation`, for use in river's pipelines and evaluations.

    Parameters
    ----------
    federation : RiverFederation
        Where it learns.
    name : str
        Which client it is.
    """

    def __init__(self, federation: RiverFederation, name: str) -> None:
        if name not in federation.clients:
            raise PsofedError(f"unknown client {name!r}; there are {', '.join(federation.clients)}")
        self.federation = federation
        self.name = name

    def __repr__(self) -> str:
        return f"FederatedClient({self.name!r}, one of {len(self.federation.clients)})"

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"federation": RiverFederation(["a", "b"]), "name": "a"}

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> "FederatedClient":
        """Return this client in a copy of its federation that has not learned yet, or has as `include_attributes`."""
        federation = copy.deepcopy(self.federation) if include_attributes else self.federation.fresh()
        return FederatedClient(**{"federation": federation, "name": self.name, **(new_params or {})})

    @property
    def weights(self) -> dict[str, float]:
        """The client's weights by feature."""
        return self.federation.weights(self.name)

    @property
    def intercept(self) -> float:
        """The client's intercept."""
        return self.federation.intercept(self.name)

    def learn_one(self, x: Mapping[str, float], y: float) -> None:
        """Learn from a row."""
        self.federation.learn(self.name, x, y)

    def predict_one(self, x: Mapping[str, float]) -> float:
        """Predict the target of a row."""
        return self.federation.predict(self.name, x)
