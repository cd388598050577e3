"""A client's samples from a table, read as it grows; the same table that ``read_data`` reads.

Which columns, what counts as a number and what as missing is decided by :mod:`psofed.fleet.table`, in one place for
simulation and federation. Two things differ for a stream that goes on. A bad row is skipped, counted and named, where
a file that is read whole is refused. And a CSV file may do without a header: if its first line holds numbers only, its
columns are called x1, x2, …, and the last one y.
"""

import csv
import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.federation.sources import Position, Samples, collect
from psofed.fleet.table import _DELIMITERS, _PARQUET, _number, _read_parquet

_log = logging.getLogger("psofed.federation")


@dataclass(frozen=True)
class TableSource:
    """Rows of a CSV or Parquet file, of one client if asked for.

    Parameters
    ----------
    path : path
        ``.parquet`` and ``.pq`` are Parquet, a folder is all such files in it by name, all else is CSV. A line of CSV
        counts once its line feed is there. A file that has become shorter was replaced, and is read from its beginning.
    dimension : int
        D; there must be as many features. 0 lets any number pass.
    target_column : str or None
        y; None for the last column; if empty there is none, and targets are NaN.
    features : tuple of str
        Columns of x; all others if empty.
    client_column, client : str
        Take only the rows that name `client` in that column.
    """

    path: Path
    dimension: int
    target_column: str | None = None
    features: tuple[str, ...] = ()
    client_column: str = ""
    client: str = ""

    def columns(self) -> tuple[tuple[str, ...], str]:
        """Return the names of the features and of the target; a PsofedError says what does not fit."""
        header, _ = self._open()
        if not header:
            raise PsofedError(f"{self.path}: has no complete line yet")
        return self._choose(header)

    def read(self, start: Position, limit: int) -> Samples:
        """Return the rows from `start` on, NaN where an input is missing; those without a target are skipped."""
        header, rows = self._open(start)
        if not header:
            return collect([], [], self.dimension, start, f"{self.path.name} has no complete line yet")
        features, target_column = self._choose(header)
        at = [header.index(name) for name in features]
        target_at = header.index(target_column) if target_column else -1
        client_at = header.index(self.client_column) if self.client_column else -1
        found: list[list[float]] = []
        ends: list[Position] = []
        position, problem = start, ""
        for offset, row in rows:
            if len(found) >= limit:
                break
            position = Position(position.samples, offset, position.skipped)
            try:
                if len(row) != len(header):
                    raise PsofedError(f"{len(row)} fields where the header has {len(header)}")
                if client_at >= 0 and str(row[client_at]).strip() != self.client:
                    continue
                values = [self._value(features[i], row[k]) for i, k in enumerate(at)]
                target = math.nan if target_at < 0 else self._value(target_column, row[target_at])
                if math.isnan(target) and target_at >= 0:
                    raise PsofedError(f"no value of {target_column}")
            except PsofedError as error:
                position = Position(position.samples, offset, position.skipped + 1)
                problem = str(error)
                continue
            position = Position(position.samples + 1, offset, position.skipped)
            found.append([*values, target])
            ends.append(position)
        return collect(found, ends, len(features), position, problem)

    def _value(self, column: str, value: Any) -> float:
        try:
            return _number(self.path, 0, column, value)
        except PsofedError:
            raise PsofedError(f"{str(value)[:40]!r} in column {column} is not a number") from None

    def _open(self, start: Position | None = None) -> tuple[list[str], Iterator[tuple[int, Sequence[Any]]]]:
        """Return the header, and the rows after `start` with the position behind each; nothing of an empty file."""
        first = start.offset if start else 0
        if self.path.is_dir() or self.path.suffix.lower() in _PARQUET:
            return self._open_parquet(first)
        try:
            with self.path.open("rb") as file:
                line = file.readline()
                length = file.seek(0, 2)
        except OSError as error:
            raise PsofedError(f"{self.path}: cannot be read ({error.strerror})") from None
        text = _decode(line.removeprefix(b"\xef\xbb\xbf"))
        if not text.strip() or not line.endswith(b"\n"):
            return [], iter(())
        if length < first:
            _log.warning("%s has become shorter: reading it from its beginning", self.path)
            first = 0
        delimiter = max(_DELIMITERS, key=text.count)
        header = [name.strip() for name in _split(text, delimiter)]
        if self.target_column not in header and all(map(_is_number, header)):
            return _numbered(len(header)), self._lines(first, delimiter)
        return header, self._lines(max(len(line), first), delimiter)

    def _open_parquet(self, first: int) -> tuple[list[str], Iterator[tuple[int, Sequence[Any]]]]:
        files = [self.path]
        if self.path.is_dir():
            files = sorted(path for path in self.path.iterdir() if path.suffix.lower() in _PARQUET)
        header: list[str] = []
        tables = []
        for path in files:
            names, rows = _read_parquet(path)
            if header and names != header:
                raise PsofedError(f"{path}: columns {', '.join(names)} where others have {', '.join(header)}")
            header = names
            tables.append(row for _, row in rows)
        numbered = enumerate(itertools.chain.from_iterable(tables), start=1)
        return header, ((number, row) for number, row in numbered if number > first)

    def _lines(self, offset: int, delimiter: str) -> Iterator[tuple[int, Sequence[Any]]]:
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                offset += len(line)
                text = _decode(line.removeprefix(b"\xef\xbb\xbf"))
                if text.strip():
                    yield offset, _split(text, delimiter)

    def _choose(self, header: list[str]) -> tuple[tuple[str, ...], str]:
        """Return the names of the features and of the target."""
        target = header[-1] if self.target_column is None else self.target_column
        roles = {target: "target", self.client_column: "--client-column"}
        roles.pop("", None)
        chosen = self.features or tuple(name for name in header if name not in roles)
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


def _numbered(count: int) -> list[str]:
    """Return the names of columns that have none: x1, x2, …, y."""
    return [*(f"x{i}" for i in range(1, count)), "y"]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
