"""Scenarios as nested mappings and as TOML: every key is checked, and what is written reads back as it was."""

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError, PsofedError, UnknownFieldError
from psofed.scenario import Attack, Data, Scenario, Selection, Uniform
from psofed.scenario.drift import Drift
from psofed.scenario.model import Model

_TABLES = {"selection": Selection, "model": Model, "data": Data, "drift": Drift, "attack": Attack}
# The scenario itself makes the last two: which fields they have depends on rule and algorithm.
_TABLE_NAMES = (*_TABLES, "aggregation_options", "algorithm_options")

EXAMPLE = """\
# A psofed scenario: a fleet, the algorithm it runs, and the attack on it.
# Every value but num_clients and dimension may be left out; the defaults are the paper's.

num_clients = 50                 # K: clients (sensors, phones, gateways)
dimension = 5                    # D: entries of the model
num_participants = 5             # |S_n|: clients the server talks to in each iteration
num_shared = 1                   # M: entries a participant exchanges each way, 1 to dimension
stepsize = 0.15                  # mu: of the clients' LMS steps
iterations = 3000
algorithm = "pso-fed"            # or "online-fed", "signsgd", "cs-fed", "qs-fed"; see [algorithm_options]
uplink = "same"                  # who downloaded uploads (the paper's equations); or "redrawn"
aggregation = "mean"             # how the server puts uploads together; "median", "krum", …: docs/aggregations.md

[selection]
pattern = "random"               # which entries are shared: "random" or "round-robin"
coordinated = true               # one mask for all clients, or one for each

[model]
kind = "linear"                  # y = w'x; or "rff": random Fourier features, then also
                                 # features = 100, bandwidth = 1.0, seed = 0 (dimension is features)

[data]
input_variance = {uniform = [0.2, 1.2]}      # or a number, or num_clients numbers
noise_variance = {uniform = [0.005, 0.025]}  # likewise
input_correlation = 0.0          # rho in R_k[i, j] = input_variance * rho^|i-j|
fleet_seed = 0                   # of the uniform draws above
test_instances = 50              # the server's test set
test_input_variance = 1.0
# function = "root-sine"         # y = f(x) + noise instead of w'x + noise, with input_dimension entries of x

# [drift]                        # the target moves while it is learned
# kind = "random-walk"           # with variance; or "jump" with size and at; "sinusoid" with amplitude and period
# variance = 1e-5

[attack]                         # leave this section out for no attack
kind = "gaussian"                # adds noise to what a Byzantine client uploads; others: docs/attacks.md
num_byzantine = 15               # how many clients are Byzantine
byzantine_set = "fixed"          # the first of the fleet; or "redrawn" in each iteration
probability = 0.2                # of an attack, each time a Byzantine client participates
variance = 0.5                   # of the noise; each kind has options of its own

# [aggregation_options]          # what one rule alone knows, for example of "trimmed-mean":
# trim = 1

# [algorithm_options]            # what one algorithm alone knows, for example of "qs-fed":
# rows = 5
# columns = 1
"""


def read_scenario(path: str | Path) -> Scenario:
    """Read a scenario from a TOML file.

    Raises
    ------
    PsofedError
        If the file cannot be read, is not TOML, or does not describe a valid scenario.
    """
    mapping = read_mapping(path)
    try:
        return scenario_from_mapping(mapping)
    except PsofedError as error:
        raise _named(error, path) from None


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Read a TOML file without looking at what is in it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PsofedError(
            f"{path}: no such file; `psofed example > {path}` writes one to start from"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PsofedError(f"{path}: cannot be read ({error})") from None
    try:
        return _parse(text)
    except PsofedError as error:
        raise _named(error, path) from None


def scenario_from_toml(text: str) -> Scenario:
    """Make a scenario from TOML text."""
    return scenario_from_mapping(_parse(text))


def scenario_from_mapping(mapping: Mapping[str, Any]) -> Scenario:
    """Make a scenario from nested mappings, refusing keys it does not know."""
    values = dict(mapping)
    _refuse_unknown("", values, Scenario)
    for name, table in _TABLES.items():
        if name in values:
            values[name] = _table_from_mapping(name, values[name], table)
    model = values.get("model")
    if "dimension" not in values and model is not None and model.features is not None:
        values["dimension"] = model.features
    scenario: Scenario = _construct("", Scenario, values)
    return scenario


def scenario_to_mapping(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as nested dicts and lists, without what is None and options left at their defaults."""
    plain = {f.name: _plain(getattr(scenario, f.name)) for f in dataclasses.fields(scenario)}
    if scenario.algorithm_options == type(scenario.algorithm_options)():
        del plain["algorithm_options"]
    return {name: value for name, value in plain.items() if value is not None and value != {}}


def scenario_to_toml(scenario: Scenario) -> str:
    """Return the scenario as TOML text."""
    mapping = scenario_to_mapping(scenario)
    lines = [f"{key} = {_toml_value(value)}" for key, value in mapping.items() if key not in _TABLE_NAMES]
    for name in _TABLE_NAMES:
        if name in mapping:
            lines += ["", f"[{name}]"]
            lines += [f"{key} = {_toml_value(value)}" for key, value in mapping[name].items()]
    return "\n".join(lines) + "\n"


def with_values(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """Return the scenario with fields set by dotted name, as ``--set`` and sweeps do.

    Setting a field of an absent attack makes the attack, provided that all it needs is set. Another
    ``attack.kind`` or ``aggregation`` starts from its own default options.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> with_values(Scenario(num_clients=50, dimension=5), {"attack.num_byzantine": 5}).attack.num_byzantine
    5
    """
    mapping = scenario_to_mapping(scenario)
    if (
        scenario.attack is not None
        and changes.get("attack.kind", scenario.attack.kind) != scenario.attack.kind
    ):
        mapping["attack"] = {k: v for k, v in mapping["attack"].items() if k not in scenario.attack.options}
    if changes.get("aggregation", scenario.aggregation) != scenario.aggregation:
        mapping.pop("aggregation_options", None)
    return scenario_from_mapping(set_values(mapping, changes))


def set_values(mapping: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's mapping with fields set by dotted name, unchecked."""
    changed = dict(mapping)
    for dotted, value in changes.items():
        table, _, key = dotted.rpartition(".")
        if not table:
            changed[key] = value
        elif table in _TABLE_NAMES:
            changed[table] = {**changed.get(table, {}), key: value}
        else:
            raise UnknownFieldError(dotted, _TABLE_NAMES)
    return changed


def parse_setting(text: str) -> tuple[str, Any]:
    """Split ``key=value``; the value is read as TOML, or as a bare word if it is none.

    Examples
    --------
    >>> parse_setting("stepsize=0.03"), parse_setting("selection.pattern=round-robin")
    (('stepsize', 0.03), ('selection.pattern', 'round-robin'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidValueError("--set", text, "key=value, for example stepsize=0.03 or attack.variance=1.0")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PsofedError(f"not valid TOML: {error}") from None


def _named(error: PsofedError, path: str | Path) -> PsofedError:
    # The same kind of error, with the file's name before its text.
    named = error.__class__.__new__(error.__class__)
    named.__dict__.update(error.__dict__)
    named.args = (f"{path}: {error}",)
    return named


def _table_from_mapping(name: str, value: Any, table: type) -> Any:
    if not isinstance(value, Mapping):
        raise InvalidValueError(name, value, f"a table [{name}]")
    values = dict(value)
    if table is not Attack or "options" in values:  # else the attack refuses what its kind does not read
        _refuse_unknown(f"{name}.", values, table)
    for key in ("input_variance", "noise_variance"):
        if isinstance(values.get(key), Mapping):
            values[key] = _uniform(f"{name}.{key}", values[key])
    return _construct(f"{name}.", table, values)


def _uniform(field: str, value: Mapping[str, Any]) -> Uniform:
    ends = value.get("uniform")
    if set(value) != {"uniform"} or not isinstance(ends, list | tuple) or len(ends) != 2:
        raise InvalidValueError(field, dict(value), "{uniform = [low, high]}")
    return Uniform(*ends)


def _refuse_unknown(prefix: str, values: Mapping[str, Any], table: type) -> None:
    known = tuple(f.name for f in dataclasses.fields(table) if (table, f.name) != (Attack, "options"))
    for key in values:
        if key not in known:
            raise UnknownFieldError(f"{prefix}{key}", known)


def _construct(prefix: str, table: type, values: Mapping[str, Any]) -> Any:
    for f in dataclasses.fields(table):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and f.name not in values:
            raise InvalidValueError(f"{prefix}{f.name}", None, "a value must be given, it has no default")
    return table(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Uniform):
        return {"uniform": [value.low, value.high]}
    if isinstance(value, Attack):
        return value.to_mapping()
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value):
        plain = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {name: entry for name, entry in plain.items() if entry is not None}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml_value(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(entry) for entry in value) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value)
    return repr(value)
