"""What commands read: a scenario with changes, a table, and modules with custom parts."""

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
    from psofed.fleet.own_data import OwnData
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

    def read(self, file: Path | None = None) -> "Scenario":
        """Return the scenario of the file (or another one) with the changes."""
        from psofed.scenario.file import read_scenario

        self.load()
        try:
            return read_scenario(file or self.file, changes=self.values())
        except (InvalidValueError, UnknownFieldError) as error:
            raise self.located(error) from None

    def values(self) -> dict[str, Any]:
        """Return the changes by field."""
        from psofed.scenario.changes import parse_setting

        return dict(parse_setting(text) for text in self.changes)

    def mapping(self) -> dict[str, Any]:
        """Return the fields of the file, if there is one, with the changes, before they are checked."""
        from psofed.scenario.changes import set_values
        from psofed.scenario.file import read_mapping

        self.load()
        mapping: Mapping[str, Any] = {} if self.file is None else read_mapping(self.file)
        try:
            return set_values(mapping, self.values())
        except (InvalidValueError, UnknownFieldError) as error:
            raise self.located(error) from None

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

    def fit(self, data: "OwnData | None") -> "Scenario":
        """Return the scenario; with data, fitted to them."""
        if data is None:
            if self.file is None:
                raise PsofedError(
                    "No scenario. Give a FILE (`psofed example > scenario.toml` writes one) or --data TABLE."
                )
            return self.read()
        from psofed.fleet.fitting import fit_scenario

        try:
            return fit_scenario(data, self.mapping())
        except (InvalidValueError, UnknownFieldError) as error:
            located = self.located(error)
            raise (
                located if located is not error or self.file is None else error.at(str(self.file))
            ) from None


class Table(Settings):
    """The user's own table."""

    group = "Your data"

    data: Path | None = option(
        default=None,
        metavar="TABLE",
        text="learn from your own data: a CSV or Parquet file, one row per observation",
    )


def read_table(table: Table, reading: Given[DataSettings]) -> "OwnData | None":
    """Return the data that the options name; None if they name none."""
    if table.data is None:
        if reading.flags:
            raise PsofedError(f"{reading.flags[0]} describes a table: add --data TABLE.")
        return None
    try:
        settings = reading.make()
    except MissingValueError as error:
        from psofed.fleet.frames import read_header

        listed = ", ".join(read_header(table.data))
        raise PsofedError(
            f"--data {table.data} needs {error.field}. The table has the columns {listed}."
        ) from None
    from psofed.fleet.own_data import read_data

    return call_with(read_data, table.data, settings)
