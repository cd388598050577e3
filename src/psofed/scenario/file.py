"""Scenarios as nested mappings and as TOML: every key is checked, and what is written reads back as it was."""

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError, PsofedError, UnknownFieldError
from psofed.common.suggest import closest
from psofed.parts.base import Attack
from psofed.parts.part import Part
from psofed.parts.registry import find_part, load_plugin, part_names, plugin_of
from psofed.scenario.scenario import Scenario
from psofed.scenario.tables import Data, Evasion, Selection, Uniform

# Tables whose fields are a part's options beside its kind; those that a name stands outside of; and plain ones.
_KIND_TABLES = ("model", "drift", "pre_aggregation", "attack", "defence")
_NAMED = {"aggregation": "aggregation_options", "algorithm": "algorithm_options"}
_PLAIN_TABLES = {"selection": Selection, "data": Data, "evasion": Evasion}
_TABLE_NAMES = (
    "selection",
    "model",
    "data",
    "drift",
    "pre_aggregation",
    "attack",
    "defence",
    "evasion",
    *_NAMED.values(),
)
_DEFAULT_KIND = {"model": "linear", "attack": "gaussian", "defence": "cusum"}
PLUGINS = "plugins"

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

# [pre_aggregation]              # what is done with uploads before they are put together
# kind = "nnm"                   # with tolerated; or "bucketing" with size; "arc" with tolerated

# [drift]                        # the target moves while it is learned
# kind = "random-walk"           # with variance; or "jump" with size and at; "sinusoid" with amplitude and period
# variance = 1e-5

[attack]                         # leave this section out for no attack
kind = "gaussian"                # adds noise to what a Byzantine client uploads; others: docs/attacks.md
num_byzantine = 15               # how many clients are Byzantine
byzantine_set = "fixed"          # the first of the fleet; or "redrawn" in each iteration
# clients = [3, 7]               # which ones, instead of how many
probability = 0.2                # of an attack, each time a Byzantine client participates
variance = 0.5                   # of the noise; each kind has options of its own

# [defence]                      # watch the uploads, and leave out who lies: docs/defence.md
# kind = "cusum"
# false_alarm_every = 10000      # iterations per honest client left out by mistake, over the whole fleet
# return_after = 100             # uploads without a new alarm until a client is let in again

# [evasion]                      # measure errors on inputs that are moved to hurt most as well
# epsilon = 0.1                  # by how much; norm = "2", or "inf"

# [aggregation_options]          # what one rule alone knows, for example of "trimmed-mean":
# trim = 1

# [algorithm_options]            # what one algorithm alone knows, for example of "qs-fed":
# rows = 5
# columns = 1
"""


def read_scenario(
    path: str | Path, plugins: Sequence[str | Path] = (), changes: Mapping[str, Any] | None = None
) -> Scenario:
    r"""Read a scenario from a TOML file.

    Parameters
    ----------
    path : path
        The file.
    plugins : sequence of path or str
        Files or modules with parts of one's own that it names (:func:`psofed.load_plugin`).
    changes : mapping
        Fields to set by dotted name before anything is checked.

    Raises
    ------
    PsofedError
        If the file cannot be read, is not TOML, or does not describe a valid scenario.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "scenario.toml"
    ...     _ = file.write_text("num_clients = 50\ndimension = 5\n")
    ...     read_scenario(file, changes={"num_shared": 2}).num_shared
    2
    """
    for plugin in plugins:
        load_plugin(plugin)
    mapping = read_mapping(path)
    try:
        return scenario_from_mapping(set_values(mapping, changes or {}))
    except PsofedError as error:
        raise _named(error, path) from None


def as_scenario(value: "Scenario | str | Path", name: str = "scenario") -> Scenario:
    """Return a scenario as it is, or read from its file; refuse anything else by name.

    Examples
    --------
    >>> as_scenario(["s.toml"])
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: scenario = ['s.toml'] is not allowed; allowed: a psofed.Scenario, or the
    path of its TOML file
    """
    if isinstance(value, Scenario):
        return value
    if isinstance(value, str | Path):
        return read_scenario(value)
    raise InvalidValueError(name, value, "a psofed.Scenario, or the path of its TOML file")


def field_names() -> list[str]:
    """Return every field of a scenario by its full name, those of all built-in parts included."""
    names = [f.name for f in dataclasses.fields(Scenario) if f.name not in _TABLE_NAMES]
    for table, kind in _PLAIN_TABLES.items():
        names += [f"{table}.{f.name}" for f in dataclasses.fields(kind)]
    # The attack first: of fields with the same name it is meant most often.
    tables = {family: family for family in ("attack", *_KIND_TABLES)} | {"pattern": "selection"}
    tables |= _NAMED
    for family, table in tables.items():
        own = {name for kind in part_names(family) for name in find_part(family, kind).options()}
        names += [f"{table}.{name}" for name in sorted(own)]
        if family in _KIND_TABLES:
            names.append(f"{table}.kind")
    return list(dict.fromkeys([*names, "attack.strength"]))


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


def scenario_from_toml(text: str, plugins: Sequence[str | Path] = ()) -> Scenario:
    """Make a scenario from TOML text."""
    for plugin in plugins:
        load_plugin(plugin)
    return scenario_from_mapping(_parse(text))


def scenario_from_mapping(mapping: Mapping[str, Any]) -> Scenario:
    """Make a scenario from nested mappings, refusing keys it does not know.

    A mapping may name the modules of its own parts (``plugins = ["my_parts"]``). Reading a file never imports them:
    that is for whoever reads it to do (:func:`psofed.load_plugin`, ``--plugin``), and said where it is missing.
    """
    try:
        return _from_mapping(mapping)
    except InvalidValueError as error:
        named = mapping.get(PLUGINS)
        if named and error.allowed.startswith("one of "):
            modules = ", ".join(map(str, named)) if isinstance(named, list) else named
            how = "load it with --plugin or psofed.load_plugin"
            hint = f"{error.allowed}; this scenario names the module {modules}: {how}"
            raise InvalidValueError(error.field, error.value, hint, error.hint) from None
        raise


def scenario_to_mapping(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as nested dicts and lists, without what is None and options left at their defaults."""
    plain: dict[str, Any] = {}
    modules = {plugin for part in scenario.parts() if (plugin := plugin_of(part)) is not None}
    if modules:
        plain[PLUGINS] = sorted(modules)
    for field in dataclasses.fields(scenario):
        value = getattr(scenario, field.name)
        if field.name in _NAMED:
            plain[field.name] = value.kind
        elif field.name == "selection":
            options = value.pattern.to_mapping()
            plain["selection"] = {"pattern": value.pattern.kind, "coordinated": value.coordinated, **options}
        elif isinstance(value, Part):
            plain[field.name] = value.to_mapping()
        elif value is not None:
            plain[field.name] = _plain(value)
    for name, table in _NAMED.items():
        part = getattr(scenario, name)
        if options := part.to_mapping():
            plain[table] = options
    return plain


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

    Setting a field of an absent attack makes the attack, provided that all it needs is set. Another kind of part
    starts from its own default options, and keeps what all kinds have (who attacks, and how often).
    ``attack.strength`` is whatever field is the attack's strength.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> scenario = Scenario(num_clients=50, dimension=5)
    >>> with_values(scenario, {"attack.num_byzantine": 5, "attack.strength": 2.0}).attack.variance
    2.0
    """
    return scenario_from_mapping(set_values(scenario_to_mapping(scenario), changes))


def set_values(mapping: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario's mapping with fields set by dotted name, unchecked but for tables there are not."""
    changed = {key: dict(value) if isinstance(value, Mapping) else value for key, value in mapping.items()}
    changes = _without_parts(changes, changed)
    # Kinds first: options that only the old kind reads go with it.
    for dotted in sorted(changes, key=lambda name: name.rpartition(".")[2] not in ("kind", "pattern")):
        table, _, key = dotted.rpartition(".")
        if table and table not in _TABLE_NAMES:
            if hint := closest(table, _TABLE_NAMES):
                raise UnknownFieldError(dotted, _TABLE_NAMES, elsewhere=[f"{hint}.{key}"])
            raise UnknownFieldError(dotted, _TABLE_NAMES, elsewhere=field_names())
        if not table:
            if key in _NAMED and changes[dotted] != changed.get(key):
                changed.pop(_NAMED[key], None)
            changed[key] = changes[dotted]
            continue
        values = changed.setdefault(table, {})
        if key in ("kind", "pattern") and values.get(key) != changes[dotted]:
            _drop_own_options(table, key, values)
        if table == "attack" and key in ("clients", "num_byzantine"):
            values.pop("num_byzantine" if key == "clients" else "clients", None)
        values[key] = changes[dotted]
    if "attack.strength" in changes:
        _replace_strength(changed["attack"], changes)
    return changed


def _without_parts(changes: Mapping[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Put parts among the changes into the mapping `changed`, whole (None: no such part); return the others."""
    others = {}
    for dotted, value in changes.items():
        if value is None and dotted in ("attack", "defence", "drift", "pre_aggregation", "evasion"):
            changed.pop(dotted, None)
        elif not isinstance(value, Part):
            others[dotted] = value
        elif dotted in _NAMED:
            changed[dotted], changed[_NAMED[dotted]] = value.kind, value.to_mapping()
        elif dotted == "selection.pattern":
            coordinated = changed.get("selection", {}).get("coordinated", True)
            changed["selection"] = {"pattern": value.kind, "coordinated": coordinated, **value.to_mapping()}
        elif dotted == "data.function":
            changed["data"] = {**changed.get("data", {}), "function": _plain(value)}
        elif dotted in _KIND_TABLES:
            changed[dotted] = value.to_mapping()
        else:
            raise InvalidValueError(dotted, value, "no part here")
    return others


def attack_from_mapping(values: Mapping[str, Any]) -> Attack:
    """Make an attack from the fields of an ``[attack]`` table; a strength replaces the value it addresses.

    Examples
    --------
    >>> attack_from_mapping({"kind": "sign-flip", "num_byzantine": 1, "scale": 1.0, "strength": 3.0}).scale
    3.0
    """
    given = dict(values)
    if "strength" in given:
        given = set_values({"attack": given}, {"attack.strength": given["strength"]})["attack"]
    attack = _part_from_table("attack", given)
    assert isinstance(attack, Attack)
    return attack


def parse_setting(text: str, option: str = "--set") -> tuple[str, Any]:
    """Split ``key=value``; the value is read as TOML, or as a bare word if it is none.

    Examples
    --------
    >>> parse_setting("stepsize=0.03"), parse_setting("selection.pattern=round-robin")
    (('stepsize', 0.03), ('selection.pattern', 'round-robin'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidValueError(option, text, "key=value, for example stepsize=0.03 or attack.variance=1.0")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _from_mapping(mapping: Mapping[str, Any]) -> Scenario:
    values = {key: value for key, value in mapping.items() if key != PLUGINS}
    known = tuple(f.name for f in dataclasses.fields(Scenario))
    for key in values:
        if key not in (*known, *_NAMED.values()):
            raise UnknownFieldError(key, (*known, *_NAMED.values(), PLUGINS), elsewhere=field_names())
    for family in _KIND_TABLES:
        if family in values:
            values[family] = _part_from_table(family, values[family])
    for family, table in _NAMED.items():
        options = _table(table, values.pop(table, {}))
        if family in values or options:
            default = next(f.default_factory for f in dataclasses.fields(Scenario) if f.name == family)
            kind = values.get(family, default.kind)  # type: ignore[union-attr]
            values[family] = find_part(family, kind, family).from_mapping(options)
    if "selection" in values:
        values["selection"] = _selection(_table("selection", values["selection"]))
    if "data" in values:
        values["data"] = _data(_table("data", values["data"]))
    if "evasion" in values:
        values["evasion"] = _evasion(_table("evasion", values["evasion"]))
    model = values.get("model")
    if "dimension" not in values and model is not None and model.num_features is not None:
        values["dimension"] = model.num_features
    _refuse_missing(values)
    return Scenario(**values)


def _part_from_table(family: str, value: Any) -> Part:
    values = _table(family, value)
    if "kind" not in values and family not in _DEFAULT_KIND:
        raise InvalidValueError(f"{family}.kind", None, "a value must be given, it has no default")
    kind: Any = values.pop("kind", _DEFAULT_KIND.get(family))
    part = find_part(family, kind, f"{family}.kind")
    if family == "attack" and "strength" in values:
        name = part.strength_field()
        if name in values:
            allowed = f'either that or attack.{name}, which is the strength of "{part.kind}"'
            raise InvalidValueError("attack.strength", values["strength"], allowed)
        values[name] = values.pop("strength")
    made: Part = part.from_mapping(values)
    return made


def _selection(values: dict[str, Any]) -> Selection:
    kind = values.pop("pattern", "random")
    coordinated = values.pop("coordinated", True)
    part = find_part("pattern", kind, "selection.pattern")
    for name in values:
        if name not in part.options():
            raise UnknownFieldError(f"selection.{name}", ("pattern", "coordinated", *part.options()))
    return Selection(pattern=part.from_mapping(values), coordinated=coordinated)


def _data(values: dict[str, Any]) -> Data:
    known = tuple(f.name for f in dataclasses.fields(Data))
    for key in values:
        if key not in known:
            raise UnknownFieldError(f"data.{key}", known)
    for key in ("input_variance", "noise_variance"):
        if isinstance(values.get(key), Mapping):
            values[key] = _uniform(f"data.{key}", values[key])
    if isinstance(values.get("function"), Mapping):
        options = dict(values["function"])
        kind: Any = options.pop("kind", None)
        values["function"] = find_part("function", kind, "data.function.kind").from_mapping(options)
    return Data(**values)


def _evasion(values: dict[str, Any]) -> Evasion:
    known = tuple(f.name for f in dataclasses.fields(Evasion))
    for key in values:
        if key not in known:
            raise UnknownFieldError(f"evasion.{key}", known)
    if "epsilon" not in values:
        raise InvalidValueError("evasion.epsilon", None, "a value must be given, it has no default")
    return Evasion(**values)


def _drop_own_options(table: str, key: str, values: dict[str, Any]) -> None:
    """Forget what only the old kind reads; an unknown kind is complained of when the scenario is made."""
    family = "pattern" if key == "pattern" else table
    old = values.get(key, _DEFAULT_KIND.get(family, "random" if family == "pattern" else None))
    try:
        own = find_part(family, old).own_options()
    except InvalidValueError:
        own = {}
    for name in (*own, "strength"):
        values.pop(name, None)


def _replace_strength(attack: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Let a strength that is set replace the value it addresses, unless that is set as well."""
    try:
        name = find_part("attack", attack.get("kind", _DEFAULT_KIND["attack"])).strength_field()
    except InvalidValueError:
        return
    if f"attack.{name}" not in changes:
        attack[name] = attack.pop("strength")


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValueError(name, value, f"a table [{name}]")
    return dict(value)


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


def _uniform(field: str, value: Mapping[str, Any]) -> Uniform:
    ends = value.get("uniform")
    if set(value) != {"uniform"} or not isinstance(ends, list | tuple) or len(ends) != 2:
        raise InvalidValueError(field, dict(value), "{uniform = [low, high]}")
    return Uniform(*ends)


def _refuse_missing(values: Mapping[str, Any]) -> None:
    for f in dataclasses.fields(Scenario):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and f.name not in values:
            raise InvalidValueError(f.name, None, "a value must be given, it has no default")


def _plain(value: Any) -> Any:
    if isinstance(value, Uniform):
        return {"uniform": [value.low, value.high]}
    if isinstance(value, Part):
        options = value.to_mapping()
        return {"kind": value.kind, **options} if options else value.kind
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
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
