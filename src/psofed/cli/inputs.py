"""Inputs of commands: a scenario with changes, a table, and modules with custom parts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.cli.completion import complete_settings
from psofed.cli.flags import Given
from psofed.common.errors import InvalidValueError, MissingValueError, PsofedError, UnknownFieldError
from psofed.common.options import option
from psofed.common.settings import Settings, call_with
from psofed.settings.data import DataSettings

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData
    from psofed.scenario import Scenario


class Plugins(Settings):
    """Modules with custom parts."""

    group = "Scenario"

    plugins: Sequence[Path] = option(
        default=(),
        flag="--plugin",
        metavar="FILE.py",
        repeat=True,
        text="load custom parts from a file or module; repeatable",
    )

    def load(self) -> None:
        """Load the modules, before anything names their parts."""
        if self.plugins:
            from psofed.parts.registry import load_plugin

            for plugin in self.plugins:
                load_plugin(plugin)


class Changes(Settings):
    """Changes of a scenario."""

    group = "Scenario"

    changes: Sequence[str] = option(
        default=(),
        flag="--set",
        metavar="KEY=VALUE",
        repeat=True,
        complete=complete_settings,
        text="change a field, such as attack.variance=1.0; repeatable",
    )


class ScenarioFile(Plugins, Changes):
    """A scenario file, with changes."""

    file: Path = option(positional=True, metavar="FILE", text="scenario, a TOML file (see `psofed example`)")

    def read(self, open_data: bool = True) -> "Scenario":
        """Return the scenario of the file with the changes; its table is opened or not."""
        from psofed.scenario.file import read_scenario

        self.load()
        try:
            return read_scenario(self.file, changes=self.values(), open_data=open_data)
        except (InvalidValueError, UnknownFieldError) as error:
            raise self.located(error) from None

    def values(self) -> dict[str, Any]:
        """Return the changes by field; a path that is typed is relative to the current folder."""
        from psofed.scenario.changes import parse_setting

        values = dict(parse_setting(text) for text in self.changes)
        if "data.file" in values:
            values["data.file"] = str(Path(values["data.file"]).resolve())
        return values

    def gives(self, field: str) -> bool:
        """Whether the file or a change gives a field."""
        from psofed.scenario.file import read_mapping

        return field in self.values() or (self.file is not None and field in read_mapping(self.file))

    @property
    def folder(self) -> Path:
        """Where paths in the file start from."""
        return Path() if self.file is None else self.file.parent

    def located(self, error: PsofedError) -> PsofedError:
        """Return an error that quotes the ``--set`` that caused it."""
        for text in self.changes:
            if text.partition("=")[0].strip() == getattr(error, "field", None):
                return error.at(f"--set {text}")
        return error


class OptionalScenario(ScenarioFile):
    """A scenario file that may be left out where there is a table."""

    file: Path | None = option(  # type: ignore[assignment]
        default=None,
        positional=True,
        metavar="FILE",
        text="scenario, a TOML file (see `psofed example`); optional with --data",
    )

    def fit(self, data: "OwnData | None", defaults: Mapping[str, Any] | None = None) -> "Scenario":
        """Return the scenario; with `data`, these take the place of the file's ``[data]`` table.

        With a table of its own, `defaults` are fields that neither the file nor ``--set`` need to give.
        """
        from psofed.scenario.changes import set_values
        from psofed.scenario.file import read_mapping
        from psofed.scenario.mapping import scenario_from_mapping

        if data is None and self.file is None:
            raise PsofedError(
                "No scenario. Give a FILE (`psofed example > scenario.toml` writes one) or --data TABLE."
            )
        self.load()
        changes = self.values()
        mapping = {**(defaults or {}), **({} if self.file is None else read_mapping(self.file))}
        if data is not None:
            named = mapping.get("data")
            if isinstance(named, Mapping) and "file" in named:
                raise PsofedError(
                    f"{self.file} reads {named['file']}: leave out --data, or choose another table with "
                    "--set data.file=TABLE."
                )
            mapping["data"] = {"rows": data}
        try:
            return scenario_from_mapping(set_values(mapping, changes), folder=self.folder, opening=True)
        except (InvalidValueError, UnknownFieldError) as error:
            located = self.located(error)
            raise (
                located if located is not error or self.file is None else error.at(str(self.file))
            ) from None


class TableOptions(Settings):
    """The user's own table."""

    group = "Your data"

    data: Path | None = option(
        default=None,
        metavar="TABLE",
        text="learn from your own data: a CSV or Parquet file, one row per observation",
    )


def read_table(table: TableOptions, reading: Given[DataSettings]) -> "OwnData | None":
    """Return the data that the options name; None if they name none."""
    if table.data is None:
        if reading.flags:
            raise PsofedError(f"{reading.flags[0]} describes a table: add --data TABLE.")
        return None
    try:
        settings = reading.make()
    except MissingValueError as error:
        from psofed.data.frames import read_header

        listed = ", ".join(read_header(table.data))
        raise PsofedError(
            f"--data {table.data} needs {error.field}. The table has the columns {listed}."
        ) from None
    from psofed.data.own_data import read_data

    return call_with(read_data, table.data, settings)
