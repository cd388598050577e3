"""Inputs of commands: a scenario with changes, a table, and modules with custom parts."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.cli.completion import complete_settings
from psofed.cli.flags import Given, flag_of
from psofed.common.errors import InvalidValueError, MissingValueError, PsofedError, UnknownFieldError
from psofed.common.options import option
from psofed.common.settings import Settings, call_with
from psofed.settings.data import DataSettings

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from psofed.data.own_data import OwnData
    from psofed.scenario import Scenario


class Cluster(Settings):
    """Where to simulate."""

    group = "Run"

    cluster: str | None = option(
        default=None, metavar="ADDRESS", text="simulate on the Dask cluster at tcp://host:port"
    )

    def connect(self) -> "AbstractContextManager[Executor | None]":
        """Give the cluster's executor, or None for this machine's threads."""
        if self.cluster is None:
            return nullcontext()
        from psofed.studies.sweeps.execute import connect

        return connect(self.cluster)


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

            try:
                for plugin in self.plugins:
                    load_plugin(plugin)
            except PsofedError as error:
                raise PsofedError(f"--plugin {error}") from error


class ScenarioFile(Plugins):
    """A scenario file, with changes."""

    file: Path | None = option(positional=True, metavar="FILE", text="scenario, a TOML file (see `psofed example`)")
    changes: Sequence[str] = option(
        default=(),
        flag="--set",
        metavar="KEY=VALUE",
        repeat=True,
        complete=complete_settings,
        text="change a field, such as attack.variance=1.0; repeatable",
    )

    def read(
        self, defaults: Mapping[str, Any] | None = None, rows: "OwnData | None" = None, *, open_data: bool = True
    ) -> "Scenario":
        """Return the scenario of the file with the changes; `rows` take the place of its ``[data]`` table.

        Parameters
        ----------
        defaults : mapping
            Fields that neither the file nor a change needs to give.
        rows : OwnData, optional
            The user's table.
        open_data : bool
            Whether to open the table that the file names.
        """
        from psofed.scenario.changes import set_values
        from psofed.scenario.mapping import scenario_from_mapping

        self.load()
        mapping = {**(defaults or {}), **self.content}
        if rows is not None:
            named = mapping.get("data")
            if isinstance(named, Mapping) and "file" in named:
                raise PsofedError(
                    f"{self.file} reads {named['file']}: leave out --data, or choose another table with "
                    "--set data.file=TABLE."
                )
            # Statistics of drawn data give way to a table; a stream is part of the iteration and is refused by name.
            stream = named["stream"] if isinstance(named, Mapping) and "stream" in named else None
            mapping["data"] = {"rows": rows} if stream is None else {"rows": rows, "stream": stream}
        changes = self.values
        folder = Path() if self.file is None else self.file.parent
        try:
            return scenario_from_mapping(set_values(mapping, changes), folder=folder, opening=open_data)
        except (InvalidValueError, UnknownFieldError) as error:
            # The longest name that fits: of aggregation and aggregation.trim, the latter.
            for changed in sorted(changes, key=len, reverse=True):
                if error.field == changed or error.field.startswith(f"{changed}."):
                    raise error.at(f"--set {self._typed[changed]}") from None
            raise (error if self.file is None else error.at(str(self.file))) from None

    @cached_property
    def content(self) -> dict[str, Any]:
        """The file's content, read once and not checked yet."""
        from psofed.scenario.file import read_mapping

        return {} if self.file is None else read_mapping(self.file)

    @cached_property
    def values(self) -> dict[str, Any]:
        """The changes by field; a path that is typed is relative to the current folder."""
        from psofed.scenario.changes import parse_setting

        values = {key: parse_setting(text)[1] for key, text in self._typed.items()}
        if "data.file" in values:
            values["data.file"] = str(Path(values["data.file"]).resolve())
        return values

    @cached_property
    def _typed(self) -> dict[str, str]:
        """The changes as they were typed, by field."""
        from psofed.scenario.changes import parse_setting

        typed: dict[str, str] = {}
        for text in self.changes:
            key, _ = parse_setting(text)
            if key in typed:
                raise PsofedError(f"--set {text}: {key} is set twice, also by --set {typed[key]}; leave out one.")
            typed[key] = text
        return typed

    def gives(self, field: str) -> bool:
        """Whether the file or a change gives a field."""
        return field in self.values or field in self.content


class ScenarioInput(ScenarioFile):
    """A scenario file, or a table of the user's that takes the place of its ``[data]``."""

    file: Path | None = option(
        default=None,
        positional=True,
        metavar="FILE",
        text="scenario, a TOML file (see `psofed example`); optional with --data",
    )
    data: Path | None = option(
        default=None,
        group="Your data",
        metavar="TABLE",
        text="learn from your own data: a CSV or Parquet file, one row per observation",
    )

    def fit(self, reading: Given[DataSettings], *, everybody: bool = False) -> "Scenario":
        """Return the scenario, with the rows of the table if there is one.

        With `everybody`, all clients of a table participate unless the file or ``--set`` gives another number.
        """
        rows = self._open_table(reading)
        if rows is None and self.file is None:
            raise PsofedError("No scenario. Give a FILE (`psofed example > scenario.toml` writes one) or --data TABLE.")
        return self.read({"num_participants": rows.num_clients} if rows is not None and everybody else {}, rows)

    def _open_table(self, reading: Given[DataSettings]) -> "OwnData | None":
        if self.data is None:
            for name in reading.values:
                flag = flag_of(reading.kind.options()[name])
                raise PsofedError(f"{flag} describes a table: add --data TABLE.")
            return None
        try:
            settings = reading.make()
        except MissingValueError as error:
            from psofed.data.frames import read_header

            listed = ", ".join(read_header(self.data))
            raise PsofedError(f"--data {self.data} needs {error.field}. The table has the columns {listed}.") from None
        from psofed.data.own_data import read_data

        return call_with(read_data, self.data, settings)
