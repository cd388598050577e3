"""A client's samples from a table with named columns, read as it grows; the same table that ``read_data`` reads.

Which columns, what counts as a number and what as missing is decided by :mod:`psofed.fleet.values`, in one place for
simulation and federation. Only the way to meet a bad row differs: a file that is read whole is refused, a stream that
goes on skips the row, counts it and says why.
"""

import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.federation.sources import Position, Samples, collect
from psofed.fleet.frames import is_parquet, parquet_rows
from psofed.fleet.table import JUDGED_ROWS
from psofed.fleet.values import client_name, delimiter_of, number, numeric_columns, shown

Rows = Iterator[tuple[int, Sequence[Any]]]


@dataclass(frozen=True)
class TableSource:
    """Rows of a CSV or Parquet file with a header, of one client if asked for.

    Parameters
    ----------
    path : path
        ``.parquet`` and ``.pq`` are Parquet, all else is CSV.
    dimension : int
        D; there must be as many features. 0 lets any number pass.
    target_column : str
        y; if empty there is none, and targets are NaN.
    features : tuple of str
        Columns of x; if empty all others that are numbers, judged by the rows that are there.
    client_column, client : str
        Take only the rows that name `client` in that column.
    """

    path: Path
    dimension: int
    target_column: str
    features: tuple[str, ...] = ()
    client_column: str = ""
    client: str = ""

    def columns(self) -> tuple[str, ...]:
        """Return the names of the features; a PsofedError says what does not fit."""
        header, _, _ = self._open()
        return self._choose(header)

    def read(self, start: Position, limit: int) -> Samples:
        """Return the rows from `start` on, NaN where an input is missing; those without a target are skipped."""
        header, rows, delimiter = self._open(start)
        features = self._choose(header)
        at = [header.index(name) for name in features]
        target_at = header.index(self.target_column) if self.target_column else -1
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
                if client_at >= 0 and client_name(row[client_at]) != self.client:
                    continue
                values = [_value(features[i], row[k], delimiter) for i, k in enumerate(at)]
                target = math.nan if target_at < 0 else _value(self.target_column, row[target_at], delimiter)
                if math.isnan(target) and target_at >= 0:
                    raise PsofedError(f"no value of {self.target_column}")
            except PsofedError as error:
                position = Position(position.samples, offset, position.skipped + 1)
                problem = str(error)
                continue
            position = Position(position.samples + 1, offset, position.skipped)
            found.append([*values, target])
            ends.append(position)
        return collect(found, ends, len(features), position, problem)

    def _open(self, start: Position | None = None) -> tuple[list[str], Rows, str]:
        """Return the header, the rows after `start` with the position behind each, and what separates fields."""
        if is_parquet(self.path):
            header, rows = parquet_rows(self.path)
            first = start.offset if start else 0
            return header, ((at, row) for at, row in rows if at > first), ","
        try:
            with self.path.open("rb") as file:
                line = file.readline()
        except OSError as error:
            raise PsofedError(f"{self.path}: cannot be read ({error.strerror})") from None
        text = _decode(line.removeprefix(b"\xef\xbb\xbf"))
        if not text.strip():
            raise PsofedError(f"{self.path}: is empty; a header line with the columns' names must come first")
        delimiter = delimiter_of(text)
        header = [name.strip() for name in _split(text, delimiter)]
        return header, self._lines(max(len(line), start.offset if start else 0), delimiter), delimiter

    def _lines(self, offset: int, delimiter: str) -> Rows:
        with self.path.open("rb") as file:
            if file.seek(0, 2) < offset:
                raise PsofedError(f"{self.path} has become shorter: rows that were read are gone")
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                offset += len(line)
                text = _decode(line)
                if text.strip():
                    yield offset, _split(text, delimiter)

    def _numeric(self) -> tuple[str, ...]:
        header, rows, delimiter = self._open()
        return numeric_columns(header, [row for _, row in itertools.islice(rows, JUDGED_ROWS)], delimiter)

    def _choose(self, header: list[str]) -> tuple[str, ...]:
        roles = {self.target_column: "--target-column", self.client_column: "--client-column"}
        roles.pop("", None)
        chosen = self.features or tuple(name for name in self._numeric() if name not in roles)
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
        return chosen


def _value(column: str, value: Any, delimiter: str) -> float:
    try:
        found = number(value, delimiter)
    except ValueError as error:
        raise PsofedError(f"column {column}: {error}") from None
    if math.isinf(found):
        raise PsofedError(f"{shown(value)} in column {column} is not finite")
    return found


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
