"""A client's samples from a table with named columns, read as it grows; the same table that ``read_data`` reads.

Which columns, what counts as a number and what as missing is decided by :mod:`psofed.fleet.table`, in one place for
simulation and federation. Only the way to meet a bad row differs: a file that is read whole is refused, a stream that
goes on skips the row, counts it and says why.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.federation.sources import Position, Samples, collect
from psofed.fleet.table import _DELIMITERS, _PARQUET, _number, _read_parquet


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
        Columns of x; all others if empty.
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
        return self._choose(self._open()[0])

    def read(self, start: Position, limit: int) -> Samples:
        """Return the rows from `start` on, NaN where an input is missing; those without a target are skipped."""
        header, rows = self._open(start)
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
                if client_at >= 0 and str(row[client_at]).strip() != self.client:
                    continue
                values = [self._value(features[i], row[k]) for i, k in enumerate(at)]
                target = math.nan if target_at < 0 else self._value(self.target_column, row[target_at])
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

    def _value(self, column: str, value: Any) -> float:
        try:
            return _number(self.path, 0, column, value)
        except PsofedError:
            raise PsofedError(f"{str(value)[:40]!r} in column {column} is not a number") from None

    def _open(self, start: Position | None = None) -> tuple[list[str], Iterator[tuple[int, Sequence[Any]]]]:
        """Return the header, and the rows after `start` with the position behind each."""
        if self.path.suffix.lower() in _PARQUET:
            header, rows = _read_parquet(self.path)
            first = start.offset if start else 0
            return header, ((number, row) for number, row in rows if number > first)
        try:
            with self.path.open("rb") as file:
                line = file.readline()
        except OSError as error:
            raise PsofedError(f"{self.path}: cannot be read ({error.strerror})") from None
        text = _decode(line.removeprefix(b"\xef\xbb\xbf"))
        if not text.strip():
            raise PsofedError(f"{self.path}: is empty; a header line with the columns' names must come first")
        delimiter = max(_DELIMITERS, key=text.count)
        header = [name.strip() for name in _split(text, delimiter)]
        return header, self._lines(max(len(line), start.offset if start else 0), delimiter)

    def _lines(self, offset: int, delimiter: str) -> Iterator[tuple[int, Sequence[Any]]]:
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

    def _choose(self, header: list[str]) -> tuple[str, ...]:
        roles = {self.target_column: "--target-column", self.client_column: "--client-column"}
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
        return chosen


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r\n")


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
