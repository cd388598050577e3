"""Your own data: every client's standardised samples in order."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.notices import notify
from psofed.common.settings import call_with, takes
from psofed.common.suggest import did_you_mean
from psofed.common.types import FloatArray
from psofed.data.standardise import standardise
from psofed.data.table import ClientTable, read_table, table_from_arrays
from psofed.render import Column, Kind, Report, Reported, Table
from psofed.render.numbers import counted, listed
from psofed.settings.data import ArraySettings, DataSettings, StreamSettings

if TYPE_CHECKING:
    import pandas

# A client needs at least this many samples after its warm-up.
FEWEST_SAMPLES = 10
_SHORT_WARMUP = 3  # rows for the first means, if there are too few for the usual number
_LARGEST = 1e100
_MOST_LISTED = 5


@dataclass(frozen=True, eq=False, repr=False)
class OwnData(Reported):
    """Samples of every client.

    Attributes
    ----------
    table : ClientTable
        Where they come from.
    inputs, targets : tuple of arrays (samples_k, d), tuple of arrays (samples_k,)
        Standardised (see :mod:`psofed.data.standardise`).
    settings : StreamSettings
        How rows became samples.
    clipped : int
        Inputs that were limited to ``settings.clip`` standard deviations.
    left_out : mapping from str to str
        Clients that cannot take part, with the reason.

    Two are equal if they hold the same samples of the same clients, wherever these come from.
    """

    table: ClientTable
    inputs: tuple[FloatArray, ...]
    targets: tuple[FloatArray, ...]
    settings: StreamSettings
    clipped: int
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnData | DataSource) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnData":
        return self  # it cannot change, and may be large

    @cached_property
    def digest(self) -> str:
        """SHA-256 of clients, columns and samples."""
        table = self.table
        names = [table.clients, table.features, table.target_column, self.samples, self.epochs]
        content = hashlib.sha256(json.dumps(names).encode())
        for array in (*self.inputs, *self.targets):
            content.update(np.ascontiguousarray(array).view(np.uint8).data)
        return content.hexdigest()

    @cached_property
    def source(self) -> "DataSource":
        """Where the samples come from, without the samples."""
        table, streaming = self.table, self.settings.shared_with(StreamSettings).to_mapping()
        reading = DataSettings(table.client_column, table.target_column, table.features, **streaming)
        return DataSource(table.file, reading, table.clients, self.samples, self.digest)

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients' names."""
        return self.table.clients

    @property
    def epochs(self) -> int:
        """How many times each client goes through its samples."""
        return self.settings.epochs

    def report(self) -> Report:
        """Return what was read: samples of each client, and what was done to them."""
        table = self.table
        columns, rows = (Column("client"), Column("samples", Kind.COUNT)), zip(self.clients, self.samples, strict=True)
        return Report(
            f"{counted(self.num_clients, 'client')} with {counted(sum(self.samples), 'sample')} of "
            f"{counted(self.num_columns, 'feature')}.",
            f"{Path(table.path).name}: {table.target_column} from {listed(table.features)}.",
            (Table("", columns, tuple(rows)),),
            tuple(self.notes()),
        )

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.inputs)

    @property
    def num_columns(self) -> int:
        """d, the number of input columns."""
        return len(self.table.features)

    @property
    def samples(self) -> tuple[int, ...]:
        """Samples of each client."""
        return tuple(len(targets) for targets in self.targets)

    @property
    def iterations(self) -> int:
        """Iterations until the client with the most samples has gone through them `epochs` times."""
        return max(self.samples) * self.epochs

    def only(self, clients: Sequence[int]) -> "OwnData":
        """Return the data of some clients, by number."""
        inputs, targets = (tuple(of[k] for k in clients) for of in (self.inputs, self.targets))
        others = [name for k, name in enumerate(self.clients) if k not in set(clients)]
        settings = self.settings.replace(leave_out=(*self.settings.leave_out, *others))
        return replace(
            self,
            table=self.table.only(clients),
            inputs=inputs,
            targets=targets,
            settings=settings,
            left_out={**self.left_out, **dict.fromkeys(others, "as asked")},
        )

    def samples_from(self, iteration: int) -> FloatArray:
        """Return the number of samples that each client has left at an iteration, shape (K,)."""
        left = np.array(self.samples, dtype=np.float64) * self.epochs - iteration
        return np.asarray(np.maximum(left, 0.0))

    def describe(self) -> dict[str, Any]:
        """Return a description of the data and their preparation, as plain values."""
        table = self.table
        return {
            "file": Path(table.path).name,
            "client_column": table.client_column,
            "target_column": table.target_column,
            "features": list(table.features),
            "epochs": self.epochs,
            "warmup_rows": self.settings.warmup,
            "clip": self.settings.clip,
            "clipped_values": self.clipped,
            "missing_values": table.missing,
            "rows_without_target": sum(table.dropped),
            "constant_columns": {name: list(clients) for name, clients in table.constant.items()},
            "columns_left_out": dict(table.left_out),
            "clients_left_out": dict(self.left_out),
            "duplicated_rows": table.duplicates,
            "decimal_commas": list(table.decimal_commas),
            "samples": dict(zip(table.clients, self.samples, strict=True)),
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """Return remarks on the data that matter for reading the results."""
        return list(self._remarks())

    def _remarks(self) -> Iterator[str]:
        table = self.table
        if isinstance(self.settings, DataSettings) and self.settings.features is None:
            yield f"{table.target_column} is predicted from all other numeric columns: {listed(table.features)}."
        if table.left_out:
            columns = ", ".join(f"{name} ({holds})" for name, holds in table.left_out.items())
            yield f"columns were left out: {columns}."
        for name, client in table.out_of_order.items():
            yield f"rows are read in file order, but by {name} those of {client} go back in time: sort the file."
        if table.decimal_commas:
            yield f"decimal commas were read in {', '.join(table.decimal_commas)}."
        for name, reason in islice(self.left_out.items(), _MOST_LISTED):
            yield f"client {name} was left out: {reason}."
        if len(self.left_out) > _MOST_LISTED:
            yield f"{len(self.left_out) - _MOST_LISTED} more clients were left out for such reasons."
        if table.duplicates:
            repeats = counted(table.duplicates, "row repeats", "rows repeat")
            yield f"{repeats} an earlier one in every column; they count like all others."
        if table.missing:
            columns = ", ".join(f"{name} ({count})" for name, count in table.missing.items())
            yield f"missing values count as the client's running mean: {columns}."
        if dropped := sum(table.dropped):
            were = "was" if dropped == 1 else "were"
            yield f"{counted(dropped, 'row')} without {table.target_column} {were} left out."
        for name, clients in table.constant.items():
            where = "all clients" if len(clients) == self.num_clients else listed(clients, 3)
            yield f"column {name} never changes in {where} and is 0 there."
        for name, (code, rows) in table.missing_codes.items():
            yield (
                f"{name} is {code:g} in {counted(rows, 'row')}, far from all its other values: if this means that it "
                "is missing, leave it empty."
            )
        if self.clipped:
            yield f"{self.clipped} inputs beyond {self.settings.clip:g} standard deviations were set to that."
        if min(self.samples) < max(self.samples):
            yield (
                f"clients have {min(self.samples)} to {max(self.samples)} samples; one that has used up its own takes "
                "no more steps, does not count in the MSE, and still exchanges its model."
            )


@dataclass(frozen=True, eq=False)
class DataSource:
    """Where the clients' samples come from, without the samples: what files of results and of plans hold.

    Attributes
    ----------
    file : str
        The table's file; empty if the samples were made in memory.
    reading : DataSettings
        Its columns, and how rows become samples.
    clients : tuple of str
        The clients' names; empty while the table is not read.
    samples : tuple of int
        Samples of each client.
    digest : str
        As :attr:`OwnData.digest`.
    """

    file: str
    reading: DataSettings
    clients: tuple[str, ...] = ()
    samples: tuple[int, ...] = ()
    digest: str = ""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DataSource) and not (self.digest or other.digest):
            return (self.file, self.reading) == (other.file, other.reading)
        return isinstance(other, OwnData | DataSource) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest or (self.file, self.reading))

    @property
    def source(self) -> "DataSource":
        """Itself, as :attr:`OwnData.source`."""
        return self

    @property
    def num_clients(self) -> int:
        """K; 0 while the table is not read."""
        return len(self.clients)

    @property
    def num_columns(self) -> int:
        """d; 0 while the columns are not known."""
        return len(self.reading.features or ())

    @property
    def iterations(self) -> int:
        """As :attr:`OwnData.iterations`; 0 while the table is not read."""
        return max(self.samples, default=0) * self.reading.epochs

    @property
    def name(self) -> str:
        """The file's name, or ``"data in memory"``."""
        return Path(self.file).name if self.file else "data in memory"

    def read(self) -> OwnData:
        """Read the table, and say so.

        Raises
        ------
        PsofedError
            If there is no file, it cannot be read, or it does not hold what it held before.
        """
        if not self.file:
            raise PsofedError(
                "The scenario's data were in memory and are not here. Pass them again: "
                "psofed.Scenario.from_data(data, ...)."
            )
        notify(f"reading {self.file}")
        data: OwnData = call_with(read_data, self.file, self.reading)
        if self.digest and data.digest != self.digest:
            raise PsofedError(f"{self.file}: does not hold the samples that this scenario was made with")
        return data

    @property
    def content(self) -> dict[str, Any]:
        """Content of the table, as far as it is known, as plain values."""
        content = {"clients": list(self.clients), "samples": list(self.samples), "digest": self.digest}
        return {name: value for name, value in content.items() if value}

    def to_mapping(self) -> dict[str, Any]:
        """Return what reading the table needs, as in a scenario's ``[data]`` table."""
        defaults, values = StreamSettings().to_mapping(), {"file": self.file, **self.reading.to_mapping()}
        return {name: value for name, value in values.items() if defaults.get(name) != value}


@takes(DataSettings)
def read_data(data: "str | Path | pandas.DataFrame | Any", settings: DataSettings) -> OwnData:
    r"""Read a table as a fleet: one client for each value of `client_column`, streaming its rows in order.

    Clients with fewer rows than `min_rows` are left out, and :meth:`OwnData.notes` names them.

    Parameters
    ----------
    data : path, pandas.DataFrame or polars.DataFrame
        The table; a file is CSV or Parquet, see :func:`psofed.data.table.read_table`.

    Returns
    -------
    OwnData
        The samples of every client.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "data.csv"
    >>> lines = [f"{'ab'[n % 2]},{n % 7},{(n % 7) + n % 3}" for n in range(100)]
    >>> _ = path.write_text("station,x,y\n" + "\n".join(lines))
    >>> data = read_data(path, "station", "y")
    >>> data.num_clients, data.num_columns, data.samples
    (2, 1, (30, 30))
    """
    table = read_table(data, settings.client_column, settings.target_column, settings.features)
    return stream_table(table, settings)


@takes(ArraySettings)
def from_arrays(X: ArrayLike, y: ArrayLike, clients: ArrayLike, settings: ArraySettings) -> OwnData:
    """Make a fleet from arrays: inputs (rows, d), targets (rows,) and client IDs (rows,).

    Parameters
    ----------
    X, y, clients : arrays
        One row per observation, in the order of time; NaN where a value is missing.

    Returns
    -------
    OwnData
        The samples of every client.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> data = from_arrays(X, X @ [1.0, -1.0], ["north", "south"] * 100)
    >>> data.table.clients, data.samples
    (('north', 'south'), (80, 80))
    """
    return stream_table(table_from_arrays(X, y, clients, settings.features), settings)


def stream_table(table: ClientTable, settings: StreamSettings) -> OwnData:
    """Standardise every client's rows, and leave out the clients that have too few."""
    warmup, clip, leave_out = settings.warmup, settings.clip, settings.leave_out
    fewest = warmup + FEWEST_SAMPLES
    wanted = fewest if settings.min_rows is None else settings.min_rows
    for name in leave_out:
        if name not in table.clients:
            allowed = f"names of clients, such as {', '.join(table.clients[:3])}"
            raise InvalidValueError("leave_out", name, allowed, did_you_mean(name, table.clients))
    kept, inputs, targets, clipped = [], [], [], 0
    left_out: dict[str, str] = {}
    for k, (client, x, y) in enumerate(zip(table.clients, table.inputs, table.targets, strict=True)):
        reason = "as asked" if client in leave_out else _unfit(x, y, table.target_column, warmup, wanted)
        if reason:
            left_out[client] = reason
            continue
        scaled_x, scaled_y, beyond = standardise(x, y, warmup, clip)
        if len(scaled_y) < FEWEST_SAMPLES:
            left_out[client] = f"its {table.target_column} changes only in its last {len(scaled_y) + 1} rows"
            continue
        for array in (scaled_x, scaled_y):
            array.setflags(write=False)
        kept.append(k)
        inputs.append(scaled_x)
        targets.append(scaled_y)
        clipped += beyond
    if not kept and set(left_out.values()) == {"as asked"}:
        raise InvalidValueError("leave_out", list(leave_out), "some of the clients, not all of them")
    if not kept:
        first, reason = next(iter(left_out.items()))
        others = "" if len(left_out) == 1 else f"; all {len(left_out)} clients fail for similar reasons"
        longest = max(map(len, table.targets), default=0)
        enough = longest < fewest and longest >= _SHORT_WARMUP + FEWEST_SAMPLES and wanted <= fewest
        short = (
            f". Try a shorter warm-up, --warmup {_SHORT_WARMUP} (in Python warmup={_SHORT_WARMUP}), which needs "
            f"{_SHORT_WARMUP + FEWEST_SAMPLES} rows"
        )
        hint = short if enough else ""
        raise PsofedError(f"{table.path}: client {first} cannot take part: {reason}{others}{hint}")
    if not any(x.any() for x in inputs):
        raise PsofedError(
            f"{table.path}: all features are constant ({', '.join(table.features)}), so there is nothing to learn"
        )
    return OwnData(table.only(kept), tuple(inputs), tuple(targets), settings, clipped, left_out)


def _unfit(x: FloatArray, y: FloatArray, target: str, warmup: int, wanted: int) -> str:
    """Return why a client with these rows cannot take part, or nothing."""
    fewest = warmup + FEWEST_SAMPLES
    if len(y) < max(wanted, fewest):
        more = f" ({warmup} for the first means, {FEWEST_SAMPLES} to learn from)" if wanted <= fewest else ""
        rows = f"it has {counted(len(y), 'row')} with {target}"
        return f"{rows}, and at least {max(wanted, fewest)} are needed{more}"
    if np.all(y == y[0]):
        return f"its {target} never changes"
    if max(np.nanmax(np.abs(x), initial=0.0), np.abs(y).max()) > _LARGEST:
        return f"it has values beyond {_LARGEST:g}, too large to be squared"
    return ""
