"""Derive from a table what it determines of its scenario: the clients, the dimension and the length."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.data.own_data import DataSource, OwnData
from psofed.parts.base import Model
from psofed.parts.models.linear import Linear
from psofed.scenario.tables import as_part

if TYPE_CHECKING:
    from psofed.scenario.scenario import Scenario


def fitted_to(rows: OwnData | DataSource, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's fields with those that follow from the rows, where they are not given.

    A model that makes a fixed number of features has as many weights.
    """
    values, model = dict(fields), fields.get("model")
    if isinstance(model, str):
        model = values["model"] = as_part("model", model)
    features = model.num_features if isinstance(model, Model) else None
    derived = {
        "num_clients": rows.num_clients,
        "dimension": features or rows.num_columns,
        "iterations": rows.iterations,
    }
    for name, value in derived.items():
        if value:  # 0 while the table is not read
            values.setdefault(name, value)
    return values


def check_fit(scenario: "Scenario", rows: OwnData | DataSource) -> None:
    """Refuse a scenario that contradicts the rows.

    Raises
    ------
    InvalidValueError
        By name, with what the rows determine.
    """
    source = rows.source
    if rows.num_clients:
        _check("num_clients", scenario.num_clients, rows.num_clients, f"the clients in {source.name}")
    if rows.num_columns and isinstance(scenario.model, Linear):
        _check("dimension", scenario.dimension, rows.num_columns, "the columns used as features")
    if rows.iterations and scenario.iterations > rows.iterations:
        allowed = f"at most {rows.iterations}, since the rows end there (epochs = {source.reading.epochs})"
        raise InvalidValueError("iterations", scenario.iterations, allowed)
    if scenario.drift is not None:
        raise InvalidValueError("drift", scenario.drift.kind, "left out with your own data")
    if scenario.attack is not None and rows.num_clients:
        scenario.attack.byzantine_mask(rows.num_clients, rows.clients)


def _check(name: str, value: Any, wanted: int, why: str) -> None:
    if value != wanted:
        raise InvalidValueError(name, value, f"{wanted}, {why}")
