"""Check that the fields of a scenario fit each other and its table, and derive what a table determines."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError
from psofed.common.options import value_type
from psofed.common.per_client import check_count
from psofed.common.validation import check_integer
from psofed.data.own_data import DataSource, OwnData
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.attack import AttackGroups
from psofed.parts.base import Model
from psofed.parts.models.built_in import Linear
from psofed.scenario.accepted import as_part

if TYPE_CHECKING:
    from psofed.scenario.scenario import Scenario


def fitted_to(rows: OwnData | DataSource | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's fields with those that follow from the rows, where they are not given.

    A model that makes a fixed number of features has as many weights.
    """
    values, model = dict(fields), fields.get("model")
    if isinstance(model, str | Mapping):
        model = values["model"] = as_part("model", model)
    derived = {"dimension": model.num_features if isinstance(model, Model) else None}
    if rows is not None:
        derived = {
            "num_clients": rows.num_clients,
            "dimension": derived["dimension"] or rows.num_columns,
            "iterations": rows.iterations,
        }
    for name, value in derived.items():
        if value:  # 0 while the table is not read
            values.setdefault(name, value)
    return values


def check_fit(scenario: "Scenario") -> None:
    """Refuse a scenario whose fields contradict each other or its table.

    Raises
    ------
    InvalidValueError
        By name, with what the other fields or the table determine.
    """
    if scenario.data.rows is not None:
        _check_rows(scenario, scenario.data.rows)
    _check_input_dimension(scenario)
    _check_data_sizes(scenario)
    if scenario.drift is not None and not scenario.is_linear:
        allowed = 'left out unless model.kind = "linear" and there is no data.function'
        raise InvalidValueError("drift", scenario.drift.kind, allowed)
    _check_attack(scenario)
    _check_network(scenario)
    uploads = scenario.most_uploads
    if scenario.pre_aggregation is not None:
        uploads = scenario.pre_aggregation.uploads_after(uploads)
    scenario.aggregation.check_mixing(scenario.pre_aggregation)
    scenario.aggregation.check_participants(uploads)
    scenario.algorithm.check(scenario)


def _check_rows(scenario: "Scenario", rows: OwnData | DataSource) -> None:
    source = rows.source
    if rows.num_clients:
        _check("num_clients", scenario.num_clients, rows.num_clients, f"(the clients in {source.name})")
    if rows.num_columns and isinstance(scenario.model, Linear):
        _check("dimension", scenario.dimension, rows.num_columns, "(the columns used as features)")
    if rows.iterations and scenario.iterations > rows.iterations:
        allowed = f"at most {rows.iterations}, since the rows end there (epochs = {source.reading.epochs})"
        raise InvalidValueError("iterations", scenario.iterations, allowed)
    if scenario.drift is not None:
        raise InvalidValueError("drift", scenario.drift.kind, "left out with your own data")
    if scenario.attack is not None and rows.num_clients:
        scenario.attack.byzantine_mask(rows.num_clients, rows.clients)


def _check_input_dimension(scenario: "Scenario") -> None:
    features, function = scenario.model.num_features, scenario.data.function
    dimension, inputs = scenario.dimension, scenario.input_dimension
    if features is not None:
        _check("model.features", features, dimension, "(the dimension), since each feature has one weight")
    if function is not None and function.num_inputs is not None:
        _check("data.input_dimension", inputs, function.num_inputs, f'with data.function = "{function.kind}"')
    if isinstance(scenario.model, Linear):
        _check("data.input_dimension", inputs, dimension, '(the dimension) with model.kind = "linear"')


def _check_data_sizes(scenario: "Scenario") -> None:
    data, num_clients = scenario.data, scenario.num_clients
    for settings in (scenario, data, *scenario.parts()):
        for name, field in settings.options().items():
            value = getattr(settings, name)
            if isinstance(value, tuple) and value_type(field)[0] == "Uniform":
                check_count(settings.full_name(name), value, num_clients)
    if data.covariances is not None:
        shape = (len(data.covariances), len(data.covariances[0]))
        if shape != (num_clients, scenario.input_dimension):
            matrices = f"{shape[0]} matrices of {shape[1]} rows"
            allowed = f"{num_clients} matrices (num_clients) of {scenario.input_dimension} rows"
            raise InvalidValueError("data.covariances", matrices, allowed)


def _check_attack(scenario: "Scenario") -> None:
    num_clients = scenario.num_clients
    for group, attack in enumerate(scenario.attacks):
        table = "attack" if len(scenario.attacks) == 1 else f"attack[{group}]"
        check_integer(f"{table}.num_byzantine", attack.num_byzantine, 0, num_clients, "num_clients")
        for place, client in enumerate(attack.clients):
            if not isinstance(client, str):  # names can only be checked against data
                check_integer(f"{table}.clients[{place}]", client, 0, num_clients - 1, "num_clients - 1")
    has_names = any(isinstance(client, str) for attack in scenario.attacks for client in attack.clients)
    if isinstance(scenario.attack, AttackGroups) and not has_names:
        scenario.attack.byzantine_mask(num_clients)  # refuses clients that two groups claim


def _check_network(scenario: "Scenario") -> None:
    if scenario.delay is None:
        return
    scenario.delay.check(scenario.iterations)
    if scenario.delay.grouping != "by-delay":
        return
    allowed = ""
    if not isinstance(scenario.aggregation, Mean):
        allowed = f'"together" with aggregation = "{scenario.aggregation.kind}": only the mean has groups'
    elif scenario.pre_aggregation is not None:
        kind = scenario.pre_aggregation.kind
        allowed = f'"together" with pre_aggregation.kind = "{kind}", which mixes all uploads'
    if allowed:
        raise InvalidValueError("delay.grouping", scenario.delay.grouping, allowed)


def _check(name: str, value: int, wanted: int, why: str) -> None:
    if value != wanted:
        raise InvalidValueError(name, value, f"{wanted} {why}")
