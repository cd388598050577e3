"""A client's samples from a table, read as it grows; the same table that ``read_data`` reads.

Which columns, what counts as a number and what as missing is decided by :mod:`psofed.data.values`, in one place for
simulation and federation. Two things differ for a stream that continues. A bad row is skipped, counted and named, where
a file that is read whole is refused. And a CSV file may do without a header: if its first line holds numbers only, its
columns are called x1, x2, …, and the last one y.
"""

import csv
import functools
import hashlib
import itertools
import logging
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from psofed.common.errors import PsofedError
from psofed.data.frames import is_parquet, parquet_rows
from psofed.data.table import JUDGED_ROWS
from psofed.data.values import client_name, delimiter_of, number, numeric_columns, shown
from psofed.federation.client.sources import LARGEST, NoDataYetError, Position, Samples, collect
from psofed.federation.protocol.column_names import ColumnNames, listed

_log = logging.getLogger("psofed.federation")

_MOST_LINES = 50  # of one row
_MARKED_BYTES = 256  # at the beginning of a file, and before the position
_MARKED_ROWS = 4  # of Parquet


class FileRow(NamedTuple):
    """A row, where it begins and ends in the file, and the mark of the file up to its end."""

    begin: int
    end: int
    fields: Sequence[Any]
    mark: str


class OpenTable(NamedTuple):
    """A table opened at a position; an empty file has neither header nor rows."""

    header: list[str]
    rows: Iterator[FileRow]
    delimiter: str = ","
    numbered: bool = False  # the file has no header line: its columns are called x1, x2, …, y
    replaced: bool = False  # it is another file than the one that the position belongs to


@dataclass(frozen=True)
class TableSource:
    """Rows of a CSV or Parquet file, of one client if asked for.

    Parameters
    ----------
    path : path
        ``.parquet`` and ``.pq`` are Parquet, a folder is all such files in it by name, all else is CSV. A line of CSV
        counts once its line feed is there. A file whose beginning or whose last bytes (of Parquet: rows) before the
        position have changed was replaced, and is read from its beginning. (Its inode does not count: an editor or
        rsync gives a file that has grown a new one, and a rotation by copying keeps the old one.)
    dimension : int
        D, which the number of features must equal. 0 allows any number.
    target_column : str or None
        y; None for the last column; if empty the table has no target, and targets are NaN.
    features : tuple of str
        Columns of x; if empty all others that are numbers, judged by the rows that are there.
    client_column, client : str
        Take only the rows that name `client` in that column.
    growing : bool
        Whether a last line without a line feed may still be written, and does not count yet.
    units : tuple of (str, str)
        Columns and their units, where they are known; a run that states others is refused.
    """

    path: Path
    dimension: int
    target_column: str | None = None
    features: tuple[str, ...] = ()
    client_column: str = ""
    client: str = ""
    growing: bool = True
    units: tuple[tuple[str, str], ...] = ()

    def columns(self) -> ColumnNames | None:
        """Return the names of the features and of the target, None if there is no header line."""
        opened = self.open()
        if not opened.header:
            raise NoDataYetError(f"{self.path}: has no complete line yet")
        return None if opened.numbered else ColumnNames(*self.choose_from(opened.header))

    def chosen(self) -> tuple[tuple[str, ...], str]:
        """Return the features and the target as they are before a run says otherwise, or say what does not fit."""
        return self.choose_from(self.open().header)

    def choose(self, columns: ColumnNames) -> "TableSource":
        """Return the same table with the run's columns in the run's order, or refuse by name."""
        columns.check_units(dict(self.units), f"this node's {self.path.name}")
        if self.features:
            named = ColumnNames(self.features, self.target_column or columns.target)
            columns.check_same(named, f"this node's choice of columns from {self.path.name}")
        elif self.target_column not in (None, columns.target):
            raise PsofedError(f"this node predicts {self.target_column}; the run's columns are {columns}")
        chosen = replace(self, features=columns.features, target_column=columns.target)
        opened = chosen.open()
        missing = [name for name in (*columns.features, columns.target) if name not in opened.header]
        if opened.header and missing:
            numbered = " (numbered, because it has no header line)" if opened.numbered else ""
            raise PsofedError(
                f"{self.path.name} lacks {listed(missing)}; it has {listed(opened.header)}{numbered}, "
                f"the run's columns are {columns}"
            )
        return chosen

    def read(self, start: Position, limit: int, at: Sequence[int] | None = None) -> Samples:
        """Return the rows from `start` on, NaN where an input is missing; those without a target are skipped.

        Parameters
        ----------
        at : sequence of int, optional
            Where the client's rows begin, if that is known; no other row is looked at.
        """
        opened = self.open(start, at)
        header, delimiter = opened.header, opened.delimiter
        if not header:
            return collect([], [], self.dimension, start, f"{self.path.name} has no complete line yet")
        features, target = self.choose_from(header)
        places = [(name, header.index(name)) for name in (*features, target) if name]
        client_at = header.index(self.client_column) if self.client_column else -1
        samples: list[list[float]] = []
        ends: list[Position] = []
        position, problem = start, ""
        for row in opened.rows:
            if len(samples) >= limit:
                break
            position = replace(position, offset=row.end, mark=row.mark)
            if client_at >= 0 and client_of(row.fields, client_at) != self.client:
                continue
            try:
                if len(row.fields) != len(header):
                    raise PsofedError(f"{len(row.fields)} fields where the header has {len(header)}")
                values = [read_value(name, row.fields[k], delimiter) for name, k in places]
                if target and math.isnan(values[-1]):
                    raise PsofedError(f"no value of {target}")
            except PsofedError as error:
                position = replace(position, skipped=position.skipped + 1)
                problem = str(error)
                continue
            position = replace(position, samples=position.samples + 1)
            samples.append(values if target else [*values, math.nan])
            ends.append(position)
        if opened.replaced and position != start:  # otherwise it would be logged at every look
            warn_of_replaced(self.path)
        return collect(samples, ends, len(features), position, problem)

    def open(self, start: Position | None = None, at: Sequence[int] | None = None) -> OpenTable:
        """Open the table at a position, with all rows from there or only those that begin `at` some offsets."""
        start = start or Position()
        if self.path.is_dir() or is_parquet(self.path):
            return self._open_parquet(start, at)
        if self.path.exists() and not self.path.is_file():  # a pipe would block whoever opens it
            raise PsofedError(f"{self.path} is neither a file nor a folder")
        try:
            with self.path.open("rb") as file:
                line = file.readline()
                replaced = _is_replaced(file, start)
        except OSError as error:
            raise PsofedError(f"{self.path}: cannot be read ({error.strerror})") from None
        text = _header_text(line, self.path)
        if not text.strip() or (self.growing and not line.endswith(b"\n")):
            return OpenTable([], iter(()))
        first = 0 if replaced else start.offset
        delimiter = delimiter_of(text)
        header = [name.strip() for name in _split(text, delimiter)]
        numbered = self.target_column not in header and all(map(_is_number, header))
        if numbered:
            header = [*(f"x{i}" for i in range(1, len(header))), "y"]
        else:
            first = max(len(line), first)
        return OpenTable(header, self._lines(first, delimiter, at), delimiter, numbered, replaced)

    def _open_parquet(self, start: Position, at: Sequence[int] | None) -> OpenTable:
        paths = [self.path]
        if self.path.is_dir():
            paths = sorted(path for path in self.path.iterdir() if is_parquet(path))
        header, rows = _load_parquet(tuple((path, _version(path)) for path in paths))

        def mark(end: int) -> str:
            head, tail = rows[: min(end, _MARKED_ROWS)], rows[max(0, end - _MARKED_ROWS) : end]
            return _mark(repr(head).encode(), repr(tail).encode())

        first = start.offset
        replaced = first > len(rows) or bool(first and start.mark and mark(first) != start.mark)
        first = 0 if replaced else first
        numbers = range(first, len(rows)) if at is None else at[bisect_left(at, first) :]
        return OpenTable(
            header, (FileRow(k, k + 1, rows[k], mark(k + 1)) for k in numbers), replaced=replaced
        )

    def _lines(self, first: int, delimiter: str, at: Sequence[int] | None) -> Iterator[FileRow]:
        with self.path.open("rb") as file:
            head = file.read(_MARKED_BYTES)
            for begin in [first] if at is None else at[bisect_left(at, first) :]:
                file.seek(max(0, begin - _MARKED_BYTES))
                tail = file.read(min(begin, _MARKED_BYTES))
                while line := _record(file, delimiter, self.growing):
                    end = begin + len(line)
                    if len(head) < min(end, _MARKED_BYTES):  # it has grown since
                        file.seek(0)
                        head = file.read(_MARKED_BYTES)
                        file.seek(end)
                    tail = (tail + line)[-_MARKED_BYTES:]
                    text = _decode(line.removeprefix(b"\xef\xbb\xbf"))
                    if text.strip():
                        yield FileRow(begin, end, _split(text, delimiter), _mark(head[:end], tail))
                    if at is not None:
                        break
                    begin = end

    def _numeric(self) -> tuple[str, ...]:
        opened = self.open()
        judged = [row.fields for row in itertools.islice(opened.rows, JUDGED_ROWS)]
        return numeric_columns(opened.header, judged, opened.delimiter)

    def choose_from(self, header: list[str]) -> tuple[tuple[str, ...], str]:
        """Return the names of the features and of the target."""
        target = header[-1] if self.target_column is None else self.target_column
        roles = {target: "target", self.client_column: "--client-column"}
        roles.pop("", None)
        chosen = self.features or tuple(name for name in self._numeric() if name not in roles)
        if not chosen:
            raise PsofedError(
                f"{self.path}: no column of numbers besides {target}; there are {', '.join(header)}"
            )
        for name in (*roles, *chosen):
            if header.count(name) != 1:
                times = "no column" if name not in header else "more than one column"
                raise PsofedError(f"{self.path}: {times} {name}; there are {', '.join(header)}")
        for name in chosen:
            if name in roles:
                raise PsofedError(f"{self.path}: column {name} cannot be a feature, it is the {roles[name]}")
        if self.dimension and len(chosen) != self.dimension:
            raise PsofedError(
                f"{self.path}: {len(chosen)} features ({', '.join(chosen)}) where the run's dimension is "
                f"{self.dimension}; choose with --features, or run with --set dimension={len(chosen)}"
            )
        return chosen, target


def warn_of_replaced(path: Path) -> None:
    """Tell that a table is read from its beginning again."""
    _log.warning(
        "%s was replaced by another file: reading it from its beginning; rows that the old one gained since the last "
        "look were not seen",
        path,
    )


def client_of(fields: Sequence[Any], at: int) -> str:
    """Return the client ID in a row; empty if it has none."""
    return client_name(fields[at]) if at < len(fields) else ""


def _is_replaced(file: BinaryIO, start: Position) -> bool:
    """Tell whether what lies before `start` is not what was read."""
    first = start.offset
    file.seek(0)
    head = file.read(min(first, _MARKED_BYTES))
    file.seek(max(0, first - _MARKED_BYTES))
    tail = file.read(min(first, _MARKED_BYTES))
    if first and not tail.endswith(b"\n"):
        return True
    return bool(start.mark) and _mark(head, tail) != start.mark


@functools.lru_cache(maxsize=1)
def _load_parquet(files: tuple[tuple[Path, tuple[int, int]], ...]) -> tuple[list[str], list[Sequence[Any]]]:
    """Return the columns and rows of Parquet files, which are read again when one of them changes."""
    header: list[str] = []
    rows: list[Sequence[Any]] = []
    for path, _ in files:
        names, numbered = parquet_rows(path)
        if header and names != header:
            raise PsofedError(f"{path}: columns {', '.join(names)} where others have {', '.join(header)}")
        header = names
        rows += [row for _, row in numbered]
    return header, rows


def _version(path: Path) -> tuple[int, int]:
    try:
        about = path.stat()
    except OSError:
        return 0, 0  # reading it says why
    return about.st_mtime_ns, about.st_size


def _mark(head: bytes, tail: bytes) -> str:
    return hashlib.blake2b(head + b"\0" + tail, digest_size=8).hexdigest()


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def read_value(column: str, value: Any, delimiter: str) -> float:
    """Return the number in a field, NaN if it is missing; a PsofedError says what is there instead."""
    try:
        result = number(value, delimiter)
    except ValueError as error:
        raise PsofedError(f"column {column}: {error}") from None
    if abs(result) > LARGEST:
        raise PsofedError(f"{shown(value)} in column {column} is not finite, or too large to compute with")
    return result


def _header_text(line: bytes, path: Path) -> str:
    try:
        text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise PsofedError(f"{path}: the first line is not UTF-8 text; save the table as CSV in UTF-8")
    return text


def _record(file: BinaryIO, delimiter: str, growing: bool) -> bytes:
    """Return the next row and its line feed, of several lines if a quoted field has some; empty if unfinished."""
    line = record = file.readline()
    after = file.tell()
    for _ in range(_MOST_LINES):
        if not record.endswith(b"\n"):
            return b"" if growing else record
        if not _is_open(record, delimiter):
            return record
        record += file.readline()
    file.seek(after)  # a quotation mark that nobody closes spoils its own line alone
    return line


def _is_open(record: bytes, delimiter: str) -> bool:
    """Tell whether a quoted field continues after the line feed."""
    if record.count(b'"') % 2 == 0:
        return False
    try:
        next(csv.reader([_decode(record)], delimiter=delimiter, strict=True), None)
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
