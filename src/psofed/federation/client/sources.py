"""Where a client's samples come from: a CSV table that grows, read as ``read_data`` reads it, or a scenario's streams.

A source hands out the samples from a position on, as far as they have arrived. The position is part of the client's
state, so a sample is learned once, whatever is restarted. What counts as a number, as missing and as a client's name is
decided by :mod:`psofed.data.values`, in one place for simulation and federation. A stream continues, so a bad row is
skipped, counted and named, where a file that is read whole is refused.

A gateway has one table with the rows of many clients. It is scanned as it grows, and where each client's rows begin is
kept, so that a client reads its own rows alone. A client joins with its first row. If the file is replaced, clients
without a row in the new one leave. Rows of clients that a gateway cannot have are skipped: nobody who adds a row stops
the others.
"""

import csv
import hashlib
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.logs import OncePerChange, log
from psofed.common.types import FloatArray
from psofed.data.frames import is_parquet, refuse_toml
from psofed.data.values import client_name, delimiter_of, number, shown
from psofed.federation.protocol.layout import ColumnNames, listed
from psofed.federation.protocol.names import MAX_CLIENTS, is_client_name
from psofed.fleet import Fleet, draw_fleet
from psofed.scenario import Scenario

LARGEST = 1e100
"""Values beyond this are no samples: the sums of squares that scale the data would overflow."""

_MAX_SAMPLES, _MAX_NUMBERS = 1_000_000, 100_000_000
_MARKED_BYTES = 256  # at the beginning of a file, and before the position


def most_samples(dimension: int) -> int:
    """Return how many samples are read and learned at once: a million, or what fits into 800 MB.

    Examples
    --------
    >>> most_samples(5), most_samples(10_000_000)
    (1000000, 10)
    """
    return max(1, min(_MAX_SAMPLES, _MAX_NUMBERS // max(1, dimension)))


@dataclass(frozen=True)
class Position:
    """How far a client has read.

    Attributes
    ----------
    samples : int
        Samples read so far.
    offset : int
        Bytes of the file read so far.
    skipped : int
        Rows that held no sample.
    mark : str
        Digest of the first bytes of the file and of the last ones before `offset`, to recognise a replaced file.
    """

    samples: int = 0
    offset: int = 0
    skipped: int = 0
    mark: str = ""


@dataclass(frozen=True, eq=False)
class Samples:
    """Some samples.

    Attributes
    ----------
    inputs, targets : array (count, D), array (count,)
        x, with NaN where a value is missing, and y.
    end : Position
        Where all that was looked at ends, with whatever was skipped.
    problem : str
        What was wrong with the last row that was skipped, or empty.
    """

    inputs: FloatArray
    targets: FloatArray
    end: Position
    problem: str = ""

    def __len__(self) -> int:
        return len(self.targets)


class Source(Protocol):
    """A stream of samples that can be continued from any position."""

    def read(self, start: Position, limit: int) -> Samples:
        """Return the samples from `start` on that have arrived, at most `limit`."""


class FileRow(NamedTuple):
    """A row, and where it begins and ends in the file."""

    begin: int
    end: int
    fields: Sequence[str]


class OpenTable(NamedTuple):
    """A table opened at a position; an empty file has neither header nor rows."""

    header: list[str]
    rows: Iterator[FileRow]
    delimiter: str = ","
    is_replaced: bool = False  # it is another file than the one that the position belongs to


@dataclass(frozen=True)
class TableSource:
    """Rows of a CSV file with a header, of one client if asked for.

    Parameters
    ----------
    path : path
        A line counts once its line feed is there. A file whose beginning or whose last bytes before the position have
        changed was replaced, and is read from its beginning. (Its inode does not count: an editor or rsync gives a file
        that has grown a new one, and a rotation by copying keeps the old one.)
    features : tuple of str
        Columns of x. A run names them; what is set before is the node's own choice, which must be the run's.
    target_column : str
        y; if empty, targets are NaN.
    client_column, client : str
        Take only the rows that name `client` in that column.
    growing : bool
        Whether a last line without a line feed may still be written, and does not count yet.
    shared : SharedTable, optional
        That knows where the client's rows begin.
    """

    path: Path
    features: tuple[str, ...] = ()
    target_column: str = ""
    client_column: str = ""
    client: str = ""
    growing: bool = True
    shared: "SharedTable | None" = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_toml(self.path)
        if is_parquet(self.path):
            raise PsofedError(f"{self.path}: Parquet files cannot grow by rows, so nodes read CSV; convert it to CSV")

    def choose(self, columns: ColumnNames | None) -> "TableSource":
        """Return the same table with the run's columns in the run's order, or refuse by name."""
        if columns is None:
            problem = f"the columns of {self.path.name} have names, the run's do not"
            raise PsofedError(f"{problem}; name them with `federation run --features … --target-column …`")
        target = self.target_column or columns.target
        columns.check_same(self.features or columns.features, target, f"this node's --data {self.path.name}")
        return replace(self, features=columns.features, target_column=columns.target)

    def read(self, start: Position, limit: int) -> Samples:
        """Return the rows from `start` on, NaN where an input is missing; those without a target are skipped."""
        begins = None if self.shared is None else self.shared.begins_of(self.client, start)
        if begins is not None and not begins:
            return Samples(np.empty((0, len(self.features))), np.empty(0), start)
        opened, names = self.open(start, begins), (*self.features, self.target_column)
        rows: list[list[float]] = []
        end, skipped, problem = None, start.skipped, ""
        if not opened.header:
            problem = f"{self.path.name} has no complete line yet"
        else:
            self._check_header(opened.header)
            places = [(name, opened.header.index(name)) for name in names if name]
            client_at = opened.header.index(self.client_column) if self.client_column else -1
        for row in opened.rows:
            if len(rows) >= limit:
                break
            end = row.end
            if client_at >= 0 and client_of(row.fields, client_at) != self.client:
                continue
            try:
                if len(row.fields) != len(opened.header):
                    raise PsofedError(f"{len(row.fields)} fields where the header has {len(opened.header)}")
                values = [_read_value(name, row.fields[k], opened.delimiter) for name, k in places]
                if self.target_column and math.isnan(values[-1]):
                    raise PsofedError(f"no value of {self.target_column}")
            except PsofedError as error:
                skipped, problem = skipped + 1, str(error)
                continue
            rows.append(values if self.target_column else [*values, math.nan])
        position = start
        if end is not None:
            if opened.is_replaced:  # an emptied file would be logged at every look
                self.warn_of_replaced()
            position = Position(start.samples + len(rows), end, skipped, self.mark(end))
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.features) + 1)
        return Samples(table[:, :-1], table[:, -1], position, problem)

    def open(self, start: Position | None = None, begins: Sequence[int] | None = None) -> OpenTable:
        """Open the table at a position, with all rows from there or only those that begin at some places."""
        start = start or Position()
        if self.path.exists() and not self.path.is_file():  # a pipe would block whoever opens it
            raise PsofedError(f"{self.path} is not a file; name a CSV file")
        try:
            with self.path.open("rb") as file:
                line = file.readline()
            is_replaced = bool(start.offset) and self.mark(start.offset) != start.mark
        except OSError as error:
            raise PsofedError(f"{self.path}: cannot be read ({error.strerror})") from None
        text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").rstrip("\r\n")
        if "\0" in text or "\N{REPLACEMENT CHARACTER}" in text:
            raise PsofedError(f"{self.path}: the first line is not UTF-8 text; save the table as CSV in UTF-8")
        if not text.strip() or (self.growing and not line.endswith(b"\n")):
            return OpenTable([], iter(()))
        delimiter = delimiter_of(text)
        first = len(line) if is_replaced else max(len(line), start.offset)
        rows = self._lines(delimiter, [first] if begins is None else begins[bisect_left(begins, first) :], begins)
        return OpenTable([name.strip() for name in _split(text, delimiter)], rows, delimiter, is_replaced)

    def mark(self, end: int) -> str:
        """Return a digest of the file up to a place, to recognise it by."""
        with self.path.open("rb") as file:
            head = file.read(min(end, _MARKED_BYTES))
            file.seek(max(0, end - _MARKED_BYTES))
            return hashlib.blake2b(head + b"\0" + file.read(min(end, _MARKED_BYTES)), digest_size=8).hexdigest()

    def warn_of_replaced(self) -> None:
        """Log that the table is read from its beginning again."""
        log.warning(
            "%s was replaced by another file: reading it from its beginning; rows that the old one gained since the "
            "last look were not seen",
            self.path,
        )

    def _lines(self, delimiter: str, places: Sequence[int], begins: Sequence[int] | None) -> Iterator[FileRow]:
        with self.path.open("rb") as file:
            for begin in places:
                file.seek(begin)
                while (line := file.readline()) and (line.endswith(b"\n") or not self.growing):
                    text, end = line.decode("utf-8", "replace").rstrip("\r\n"), file.tell()
                    if text.strip():
                        yield FileRow(end - len(line), end, _split(text, delimiter))
                    if begins is not None:
                        break

    def _check_header(self, header: list[str]) -> None:
        """Raise PsofedError if a column that is needed is not there exactly once."""
        names = [name for name in (*self.features, self.target_column, self.client_column) if name]
        if missing := [name for name in names if name not in header]:
            are_numbers = all(map(_is_number, header))
            hint = "; is the header line with the names of the columns missing?" if are_numbers else ""
            raise PsofedError(f"{self.path.name} lacks {listed(missing)}; it has {listed(header)}{hint}")
        if twice := [name for name in names if header.count(name) > 1]:
            raise PsofedError(f"{self.path.name} has more than one column {twice[0]}")
        if self.client_column in (*self.features, self.target_column) and self.client_column:
            raise PsofedError(f"column {self.client_column} is --client-column, and one of the run's columns")


class SharedTable:
    """A table of many clients.

    Parameters
    ----------
    table : TableSource
        With a client column, and no client.
    """

    def __init__(self, table: TableSource) -> None:
        self.table = table
        self._begins: dict[str, array[int]] = {}  # of each client's rows, 8 bytes per row
        self._scanned = Position()
        self._checked: set[str] = set()  # clients whose position belongs to the current file
        self._is_news = OncePerChange()

    def names(self) -> tuple[str, ...]:
        """Read what the file has gained, and return the clients that it has rows of."""
        table, opened = self.table, self.table.open(self._scanned)
        if opened.is_replaced:
            table.warn_of_replaced()
            self._scanned = Position()
            self._begins.clear()
            self._checked.clear()
        if opened.header and table.client_column not in opened.header:
            columns = ", ".join(opened.header)
            raise PsofedError(f"{table.path}: no column {table.client_column}; there are {columns}")
        client_at = opened.header.index(table.client_column) if opened.header else 0
        end = 0
        for row in opened.rows:
            end = row.end
            client = client_of(row.fields, client_at)
            if client and self._admits(client):
                self._begins.setdefault(client, array("q")).append(row.begin)
        if end:
            self._scanned = Position(offset=end, mark=table.mark(end))
        return tuple(sorted(self._begins))

    def _admits(self, client: str) -> bool:
        """Return whether a gateway can have this client; if not, that is logged once."""
        if client in self._begins:
            return True
        problem = ""
        if not is_client_name(client):
            problem = "skipping rows whose client name is not valid, such as"
        elif len(self._begins) >= MAX_CLIENTS:
            problem = f"skipping rows of clients beyond the first {MAX_CLIENTS:,}, such as"
        if problem and self._is_news(problem, problem):
            log.warning("%s: %s", problem, client[:40])
        return not problem

    def source(self, client: str) -> TableSource:
        """Return the rows of one client, as far as the table was scanned."""
        return replace(self.table, client=client, shared=self)

    def begins_of(self, client: str, start: Position) -> Sequence[int]:
        """Return where the client's rows begin; nothing if there are none from `start` on."""
        if not self._scanned.offset:
            self.names()
        begins = self._begins.get(client, array("q"))
        is_read = client in self._checked and bisect_left(begins, start.offset) == len(begins)
        self._checked.add(client)
        return array("q") if is_read else begins


def client_of(fields: Sequence[str], at: int) -> str:
    """Return the client ID in a row; empty if it has none."""
    return client_name(fields[at]) if at < len(fields) else ""


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(number(text))
    except ValueError:
        return False


def _read_value(column: str, value: str, delimiter: str) -> float:
    """Return the number in a field, NaN if it is missing; a PsofedError says what is there instead."""
    try:
        result = number(value, delimiter)
    except ValueError as error:
        raise PsofedError(f"column {column}: {error}") from None
    if abs(result) > LARGEST:
        raise PsofedError(f"{shown(value)} in column {column} is not finite, or too large to compute with")
    return result


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


@dataclass(frozen=True)
class SyntheticSource:
    """The stream of client `partition` of a scenario; sample n depends on (seed, partition, n) alone.

    Examples
    --------
    >>> source = SyntheticSource(Scenario(num_clients=5, dimension=2), partition=1, seed=0)
    >>> late = source.read(Position(samples=3), limit=1)
    >>> bool((late.inputs == source.read(Position(), limit=4).inputs[3:]).all())
    True
    """

    scenario: Scenario
    partition: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.scenario.num_clients:
            raise InvalidValueError("partition", self.partition, f"0 to {self.scenario.num_clients - 1}")

    @cached_property
    def _fleet(self) -> Fleet:
        return draw_fleet(self.scenario)

    @cached_property
    def _root(self) -> FloatArray | None:
        """A square root of R_k, or None for white inputs."""
        if self._fleet.is_white:
            return None
        covariance = self._fleet.covariances()[self.partition]
        try:
            return np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:  # singular
            values, vectors = np.linalg.eigh(covariance)
            return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

    def read(self, start: Position, limit: int) -> Samples:
        """Draw the samples from `start` on."""
        fleet, k = self._fleet, self.partition
        target = fleet.target if fleet.target_offsets is None else fleet.target + fleet.target_offsets[k]
        inputs = np.empty((limit, self.scenario.dimension))
        targets = np.empty(limit)
        for i in range(limit):
            generator = np.random.default_rng((self.seed, k, start.samples + i))
            white = generator.standard_normal(self.scenario.dimension)
            inputs[i] = np.sqrt(fleet.input_variance[k]) * white if self._root is None else self._root @ white
            noise = np.sqrt(fleet.noise_variance[k]) * generator.standard_normal()
            targets[i] = inputs[i] @ target + noise
        return Samples(inputs, targets, Position(start.samples + limit))
