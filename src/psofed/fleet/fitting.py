"""Fit a scenario to your own data, which determine the clients, the dimension and the length."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.fleet.nonlinear import linear_scenario
from psofed.parts.models.linear import Linear
from psofed.scenario import Scenario
from psofed.scenario.mapping import scenario_from_mapping

if TYPE_CHECKING:
    from psofed.fleet.own_data import OwnData


def fit_scenario(data: "OwnData", mapping: Mapping[str, Any] | None = None) -> Scenario:
    """Make a scenario for `data` from the fields of `mapping` (as in a scenario file; all are optional).

    ``num_clients``, ``dimension`` and ``iterations`` follow from the data: clients, columns (or random features) and
    rows. Given, they must agree; fewer iterations end the run early. The ``[data]`` table describes streams that
    are not used, and is left out.

    Raises
    ------
    InvalidValueError
        If the mapping contradicts the data.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed import from_arrays
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> data = from_arrays(X, X @ [1.0, -1.0], ["north", "south"] * 100)
    >>> scenario = fit_scenario(data, {"num_shared": 1})
    >>> scenario.num_clients, scenario.dimension, scenario.num_shared
    (2, 2, 1)
    """
    values = {key: value for key, value in (mapping or {}).items() if key != "data"}
    given = (mapping or {}).get("data", {})
    stream = given.get("stream", "independent") if isinstance(given, Mapping) else "independent"
    _check_stream(stream.get("kind") if isinstance(stream, Mapping) else stream)
    values.setdefault("num_clients", data.num_clients)
    values.setdefault("iterations", data.iterations)
    values.setdefault("num_participants", min(5, data.num_clients))
    model = values.get("model")
    has_features = isinstance(model, Mapping) and model.get("kind") == "rff"
    if has_features:
        values["data"] = {"input_dimension": data.num_columns}
    else:
        values.setdefault("dimension", data.num_columns)
    _check("num_clients", values["num_clients"], data.num_clients, f"the clients in {data.table.path}")
    if not has_features:
        _check("dimension", values["dimension"], data.num_columns, "the columns used as features")
    scenario = scenario_from_mapping(values)
    check_fit(scenario, data)
    return scenario


def check_fit(scenario: Scenario, data: "OwnData") -> None:
    """Refuse a scenario that contradicts the data."""
    _check("num_clients", scenario.num_clients, data.num_clients, f"the clients in {data.table.path}")
    name = "dimension" if isinstance(scenario.model, Linear) else "data.input_dimension"
    _check(name, scenario.input_dimension, data.num_columns, "the columns used as features")
    if scenario.iterations > data.iterations:
        allowed = f"at most {data.iterations}, since the rows end there (epochs = {data.epochs})"
        raise InvalidValueError("iterations", scenario.iterations, allowed)
    if scenario.drift is not None:
        raise InvalidValueError("drift", scenario.drift.kind, "left out with your own data")
    _check_stream(scenario.data.stream.kind)
    if scenario.attack is not None:
        scenario.attack.byzantine_mask(data.num_clients, data.table.clients)
    if scenario.data.function is not None:
        raise InvalidValueError("data.function", scenario.data.function.kind, "left out with your own data")


def measured_scenario(scenario: Scenario, data: "OwnData") -> Scenario:
    """Return a linear scenario with the moments measured in the data, for theory and tuning.

    Covariances R_k are those of every client's standardised samples, noise variances those of what the least-squares
    solution on all samples leaves. The theory takes inputs for Gaussian and independent over time, and all clients for
    having the same best weights; real data are neither, so its numbers are approximations (docs/own_data.md).
    """
    features = scenario.model.make_features(data.num_columns, scenario.dimension)
    fleet = data.fleet(features, higher_moments=False)
    return linear_scenario(scenario, fleet.covariances(), fleet.noise_variance)


def _check_stream(kind: Any) -> None:
    if kind != "independent":
        raise InvalidValueError("data.stream", kind, "left out with your own data")


def _check(name: str, value: Any, wanted: int, why: str) -> None:
    if value != wanted:
        raise InvalidValueError(name, value, f"{wanted}, {why}")
