"""PSO-Fed for river: clients with ``learn_one`` and ``predict_one``. Needs river, ``pip install river``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from psofed.common.errors import PsofedError
from psofed.simulation.row_by_row import RowFederation

if TYPE_CHECKING:
    Regressor = object  # river is not installed where types are checked
else:
    try:
        from river.base import Regressor
    except ImportError as _error:
        raise PsofedError(
            f"psofed.river needs river; install it with: pip install river ({_error})"
        ) from None

__all__ = ["FederatedClient", "RiverFederation"]


class RiverFederation(RowFederation):
    """Clients that learn together, each a river regressor: ``federation.client("north")``.

    See :class:`psofed.simulation.row_by_row.RowFederation` for its arguments.
    """

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
