"""PSO-Fed as a scikit-learn regressor. Needs ``pip install -e '.[sklearn]'``."""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psofed.common.errors import missing_package
from psofed.common.types import FloatArray
from psofed.scenario import Selection
from psofed.simulation.online import OnlineFederation, online_scenario

try:
    import sklearn.base as base
    import sklearn.metrics as metrics
    import sklearn.utils as utils
    import sklearn.utils.validation as validation
    from sklearn.exceptions import ConvergenceWarning
except ImportError as _error:
    raise missing_package("psofed.sklearn", f"scikit-learn ({_error})", "sklearn") from None

__all__ = ["FederatedRegressor"]

_validate_data: Any = validation.validate_data  # its annotations are those of a placeholder
_check_sample_weight: Any = validation._check_sample_weight


if TYPE_CHECKING:
    _Estimator = object  # scikit-learn's classes have no types
else:

    class _Estimator(base.RegressorMixin, base.BaseEstimator):
        """scikit-learn's base classes of a regressor."""


@dataclass(eq=False, repr=False)
class FederatedRegressor(_Estimator):
    """Linear regression by clients that share parts of their models (PSO-Fed).

    Every row belongs to a client, and row n of each client to iteration n. In each iteration the participants replace
    M entries of their model by the server's, every client takes one LMS step, w ← w + μ x (y − wᵀx), and the
    participants upload M entries, which the server aggregates. The update is that of :func:`psofed.simulate`. Inputs
    should be scaled: LMS diverges if μ E‖x‖² exceeds about 2.

    Parameters
    ----------
    stepsize : float
        μ.
    num_shared : int, optional
        M, entries shared per message, the intercept included; all by default.
    num_participants : int, optional
        Clients that exchange entries in an iteration; all by default.
    aggregation : str or Aggregation
        The server's rule: ``"mean"``, ``"median"``, … or a value such as ``psofed.aggregations.TrimmedMean()``.
    pattern : str or Pattern
        How shared entries are chosen: ``"random"`` or ``"round-robin"``.
    coordinated : bool
        One choice of entries for all clients, or one for each.
    model : {"server", "client"}
        Predict with the server's model, or with each client's own; then ``predict`` needs `clients`.
    fit_intercept : bool
        Learn an intercept, the weight of a constant input.
    intercept_scaling : float
        c, that constant: the intercept learns with the stepsize c² μ.
    epochs : int
        Passes of each client through its rows in :meth:`fit`.
    random_state : int, RandomState or None
        Seed of participants and shared entries; an integer is the seed of ``simulate``.

    Attributes
    ----------
    coef_, intercept_ : array (n_features,), float
        The server's model.
    client_coef_, client_intercept_ : array (n_clients, n_features), array (n_clients,)
        Each client's own model.
    clients_ : array (n_clients,)
        The clients, sorted.
    n_iter_ : int
        Iterations that are final.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, clients = rng.standard_normal((600, 3)), np.repeat(["north", "south", "west"], 200)
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0
    >>> regressor = FederatedRegressor(stepsize=0.05, num_shared=2).fit(X, y, clients=clients)
    >>> regressor.coef_.round(2).tolist(), round(regressor.intercept_, 2)
    ([1.0, -2.0, 0.5], 3.0)
    """

    n_features_in_: ClassVar[int]  # set by scikit-learn in each instance

    # Requested by default, so that pipelines and searches pass `clients` on (metadata routing).
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"clients": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"clients": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"clients": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"clients": True}

    stepsize: float = 0.05
    _: KW_ONLY
    num_shared: int | None = None
    num_participants: int | None = None
    aggregation: Any = "mean"
    pattern: Any = "random"
    coordinated: bool = True
    model: str = "server"
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    epochs: int = 1
    random_state: Any = 0

    def fit(
        self, X: ArrayLike, y: ArrayLike, clients: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from all rows.

        Parameters
        ----------
        X, y : array (n_samples, n_features), array (n_samples,)
        clients : array (n_samples,), optional
            Client of each row; one client by default.
        sample_weight : array (n_samples,), optional
            s ≥ 0 of each row, which multiplies its stepsize: w ← w + s μ x (y − wᵀx). Rows of weight 0 are left out.
        """
        X, y, names = self._validate(X, y, clients, sample_weight, reset=True)
        names, index = np.unique(names, return_inverse=True)
        self._begin(names)
        return self._learn(X, y, index, int(self.epochs))

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        clients: ArrayLike | None = None,
        all_clients: Sequence[Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Continue with more rows. Pieces in any number give the very model of one :meth:`fit` with a single epoch.

        The first call fixes the clients: `all_clients`, or those of its rows. Row n of a client waits for row n
        of the others, so that memory grows with the rows by which a client is ahead; predictions use all rows.
        """
        first = not hasattr(self, "clients_")
        X, y, names = self._validate(X, y, clients, sample_weight, reset=first)
        if first:
            self._begin(np.unique(names if all_clients is None else np.asarray(all_clients)))
        return self._learn(X, y, self._places(names), 1)

    def predict(self, X: ArrayLike, clients: ArrayLike | None = None) -> FloatArray:
        """Predict the target of each row, with the server's model or with that of the row's client."""
        validation.check_is_fitted(self)
        rows: FloatArray = _validate_data(self, X, reset=False, dtype=np.float64)
        if self.model == "server":
            return np.asarray(rows @ self.coef_ + self.intercept_)
        if clients is None and len(self.clients_) > 1:
            raise ValueError('model="client" predicts with each client\'s own model; pass clients=')
        places = self._places(_client_names(clients, len(rows), self.clients_[0]))
        products = np.einsum("ij,ij->i", rows, self.client_coef_[places])
        return np.asarray(products + self.client_intercept_[places])

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, clients: ArrayLike | None = None
    ) -> float:
        """Return R² of the predictions."""
        return float(metrics.r2_score(y, self.predict(X, clients), sample_weight=sample_weight))

    @property
    def coef_(self) -> FloatArray:
        """The server's weights."""
        return self._split(self._fitted().server)[0]

    @property
    def intercept_(self) -> float:
        """The server's intercept."""
        return float(self._split(self._fitted().server)[1])

    @property
    def client_coef_(self) -> FloatArray:
        """The clients' own weights."""
        return self._split(self._fitted().models)[0]

    @property
    def client_intercept_(self) -> FloatArray:
        """The clients' own intercepts."""
        return np.asarray(self._split(self._fitted().models)[1])

    @property
    def n_iter_(self) -> int:
        """Iterations that are final."""
        return max(1, self._fitted().iteration)

    def _fitted(self) -> OnlineFederation:
        if "_federation" not in self.__dict__:
            raise AttributeError("this FederatedRegressor is not fitted yet")
        return self._federation

    def _validate(
        self, X: ArrayLike, y: ArrayLike, clients: ArrayLike | None, weights: ArrayLike | None, *, reset: bool
    ) -> tuple[FloatArray, FloatArray, NDArray[Any]]:
        """Return inputs, with the constant, and targets, both scaled by the root of the weights, and the clients."""
        if self.model not in ("server", "client"):
            raise ValueError(f'model must be "server" or "client"; got {self.model!r}')
        checked = _validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=True)
        rows, targets = checked[0], np.asarray(checked[1], dtype=np.float64)
        names = _client_names(clients, len(targets))
        if self.fit_intercept:
            rows = np.column_stack([rows, np.full(len(rows), float(self.intercept_scaling))])
        if weights is None:
            return rows, targets, names
        roots = np.sqrt(_check_sample_weight(weights, rows, ensure_non_negative=True))
        kept = roots > 0
        if not kept.any():
            raise ValueError("sample_weight must be positive for at least one row; all are 0")
        return (rows * roots[:, None])[kept], (targets * roots)[kept], names[kept]

    def _begin(self, names: NDArray[Any]) -> None:
        dimension = self.n_features_in_ + bool(self.fit_intercept)
        scenario = online_scenario(
            len(names),
            dimension,
            num_shared=self.num_shared,
            num_participants=self.num_participants,
            stepsize=self.stepsize,
            aggregation=self.aggregation,
            selection=Selection(pattern=self.pattern, coordinated=self.coordinated),
        )
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = utils.check_random_state(seed).randint(2**31 - 1)
        self.clients_ = names
        self._federation = OnlineFederation(scenario, int(seed))

    def _learn(self, X: FloatArray, y: FloatArray, index: NDArray[np.intp], epochs: int) -> Self:
        order = np.argsort(index, kind="stable")
        ends = np.cumsum(np.bincount(index, minlength=len(self.clients_)))[:-1]
        self._federation.add(np.split(X[order], ends), np.split(y[order], ends), epochs)
        if self._federation.has_diverged:
            warnings.warn(
                "The models diverged. Scale the inputs or reduce the stepsize.", ConvergenceWarning, stacklevel=3
            )
        return self

    def _places(self, names: NDArray[Any]) -> NDArray[np.intp]:
        places = np.searchsorted(self.clients_, names).clip(0, len(self.clients_) - 1)
        unknown = np.unique(names[self.clients_[places] != names])
        if unknown.size:
            listed = ", ".join(map(str, unknown[:5]))
            raise ValueError(
                f"unknown clients: {listed}; fit has seen {len(self.clients_)} others (partial_fit takes all_clients=)"
            )
        return places

    def _split(self, models: FloatArray) -> tuple[FloatArray, Any]:
        """Return weights and intercepts of models with the intercept as last entry, if there is one."""
        if not self.fit_intercept:
            return models.copy(), np.zeros(models.shape[:-1])
        return models[..., :-1].copy(), self.intercept_scaling * models[..., -1]


def _client_names(clients: ArrayLike | None, rows: int, default: Any = 0) -> NDArray[Any]:
    names = np.full(rows, default) if clients is None else np.asarray(clients)
    if names.shape != (rows,):
        raise ValueError(f"clients must name the client of each of the {rows} rows; got shape {names.shape}")
    return names
