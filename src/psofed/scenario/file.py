"""Scenarios as TOML, in files and as text; :mod:`psofed.scenario.mapping` checks what is in them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.toml import read_toml, toml_value
from psofed.data.frames import PARQUET
from psofed.data.own_data import OwnData
from psofed.parts.registry import load_plugin
from psofed.scenario.changes import set_values
from psofed.scenario.mapping import SEEN, TABLE_NAMES, scenario_from_mapping, scenario_to_mapping
from psofed.scenario.scenario import Scenario

# What `psofed example` prints: the paper's scenario, with all that can be set.
EXAMPLE = Path(__file__).with_name("example.toml").read_text(encoding="utf-8")


def read_scenario(
    path: str | Path,
    plugins: Sequence[str | Path] = (),
    changes: Mapping[str, Any] | None = None,
    *,
    open_data: bool = True,
) -> Scenario:
    r"""Read a scenario from a TOML file.

    Parameters
    ----------
    path : path
        The file.
    plugins : sequence of path or str
        Files or modules with your own parts that it names (:func:`psofed.load_plugin`).
    changes : mapping
        Fields to set by dotted name before anything is checked.
    open_data : bool
        Whether to read the table that ``[data]`` names, relative to the file; without it the scenario only says where
        the rows are.

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
        return scenario_from_mapping(set_values(mapping, changes or {}), folder=Path(path).parent, opening=open_data)
    except PsofedError as error:
        # A wrong change is not a mistake in the file.
        raise (error if getattr(error, "field", None) in (changes or {}) else error.at(str(path))) from None


def as_scenario(value: Any, name: str = "scenario") -> Scenario:
    """Return a scenario as it is, or read from its file; refuse anything else by name.

    Examples
    --------
    >>> as_scenario(["s.toml"])
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: scenario must be a psofed.Scenario, or the path of its TOML file; got
    ['s.toml'].
    """
    if isinstance(value, Scenario):
        return value
    if isinstance(value, str | Path):
        return read_scenario(value)
    if isinstance(value, OwnData) or hasattr(value, "columns"):
        data = "data" if isinstance(value, OwnData) else "psofed.read_data(table, client_column, target_column)"
        raise PsofedError(f"{name} is a table. Make a scenario of it with psofed.Scenario.from_data({data}, …).")
    raise InvalidValueError(name, value, "a psofed.Scenario, or the path of its TOML file")


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file, not checked yet."""
    refuse_table(path)
    try:
        content = read_toml(path)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file; `psofed example > {path}` writes one to start from") from None
    if isinstance(content.get("grid"), dict):
        raise PsofedError(f"{path}: this is a grid of scenarios; run it with `psofed sweep {path}`.")
    return content


def refuse_table(path: str | Path, advice: str = "") -> None:
    """Refuse a table where a TOML file is expected, and say where tables belong."""
    if Path(path).suffix.lower() in (".csv", ".tsv", *PARQUET):
        advice = advice or (
            f"a scenario. On the command line give it as --data {path}; in Python make a scenario of it with "
            "psofed.read_data and psofed.Scenario.from_data."
        )
        raise PsofedError(f"{path}: this is a table, not {advice}")


def scenario_to_toml(scenario: Scenario, folder: Path | None = None) -> str:
    """Return the scenario as TOML text; the path of a table is relative to `folder` if it lies in there.

    Raises
    ------
    PsofedError
        If the scenario's data do not come from a file.
    """
    mapping = scenario_to_mapping(scenario)
    if scenario.data.rows is not None:
        data = {key: value for key, value in mapping["data"].items() if key not in SEEN}
        if not data["file"]:
            raise PsofedError(
                "The scenario's data are in memory, and TOML can only name a file. Write them to a CSV or Parquet file "
                "and read that with psofed.read_data."
            )
        if folder is not None and Path(data["file"]).is_relative_to(folder.resolve()):
            data["file"] = Path(data["file"]).relative_to(folder.resolve()).as_posix()
        mapping["data"] = data
    lines = [f"{key} = {toml_value(value)}" for key, value in mapping.items() if key not in TABLE_NAMES]
    for name in TABLE_NAMES:
        if name == "channel":
            for direction, value in mapping.get(name, {}).items():
                lines += _toml_table(f"{name}.{direction}", value)
        elif name in mapping:
            lines += _toml_table(name, mapping[name])
    return "\n".join(lines) + "\n"


def _toml_table(name: str, value: Any) -> list[str]:
    """Return the lines of a table, or of a list of tables."""
    if isinstance(value, list):
        return [line for table in value for line in ("", f"[[{name}]]", *_toml_fields(table))]
    return ["", f"[{name}]", *_toml_fields(value)]


def _toml_fields(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {toml_value(value)}" for key, value in table.items()]
