"""Where a client's samples come from: a file that grows, or a Python generator.

A source hands out the samples from a position on, as far as they have arrived. The position is part of the
client's state, so a sample is learned once, whatever is restarted.

========================  ==========================================================================
``readings.csv``          a text file that is appended to: inputs, then the target as last column
``readings.parquet``      a Parquet file that is replaced by longer ones, or a folder that gains files
``package.module:name``   a function ``name(partition, start)`` that yields (x, y) from sample `start` on
========================  ==========================================================================
"""

import importlib
import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.types import FloatArray

_log = logging.getLogger("psofed.federation")

MAX_SAMPLES_PER_CALL = 1_000_000


@dataclass(frozen=True)
class Position:
    """How far a client has read.

    Attributes
    ----------
    samples : int
        Samples read so far.
    offset : int
        Bytes of the file read so far (CSV only).
    skipped : int
        Lines that held no sample (CSV only).
    """

    samples: int = 0
    offset: int = 0
    skipped: int = 0


@dataclass(frozen=True, eq=False)
class Samples:
    """Some samples.

    Attributes
    ----------
    inputs, targets : array (count, D), array (count,)
        x, with NaN where a value is missing, and y.
    ends : tuple of Position
        Where each of them ends.
    end : Position, optional
        Where all that was looked at ends, with whatever was skipped behind the last sample; by default that
        sample's end.
    problem : str
        What was wrong with the last row that was skipped, or empty.
    """

    inputs: FloatArray
    targets: FloatArray
    ends: tuple[Position, ...]
    end: Position | None = None
    problem: str = ""

    def end_after(self, start: Position) -> Position:
        """Return where all that was looked at from `start` on ends."""
        return self.end or (self.ends[-1] if self.ends else start)

    def __len__(self) -> int:
        return len(self.targets)


class Source(Protocol):
    """A stream of samples that can be read on from any position."""

    def read(self, start: Position, limit: int) -> Samples:
        """Return the samples from `start` on that have arrived, at most `limit`."""
        ...


def open_source(name: str, dimension: int, partition: int = 0) -> Source:
    """Return the source called `name`: a CSV or Parquet file, a folder of these, or ``module:function``."""
    path = Path(name)
    if path.suffix == ".parquet" or path.is_dir():
        return ParquetSource(path, dimension)
    if path.suffix in (".csv", ".txt", ".tsv") or path.is_file():
        return CsvSource(path, dimension)
    module, _, function = name.partition(":")
    if module and function.isidentifier():
        return GeneratorSource(module, function, dimension, partition)
    raise InvalidValueError("data", name, "a .csv file, a .parquet file or folder, or module:function")


@dataclass(frozen=True)
class CsvSource:
    """Lines of numbers, the target last, in a file that may be appended to at any moment.

    A line counts once its line feed is there. Lines that are no sample (a header, a gap, a NaN) are
    skipped and counted. A file that has become shorter was replaced and is read from its beginning.
    """

    path: Path
    dimension: int

    def read(self, start: Position, limit: int) -> Samples:
        """Return the complete lines from `start` on."""
        rows: list[list[float]] = []
        ends: list[Position] = []
        position = start
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < start.offset:
                    _log.warning("%s has become shorter: reading it from its beginning", self.path)
                    position = Position(start.samples, 0, start.skipped)
                file.seek(position.offset)
                for line in file:
                    if len(rows) >= limit or not line.endswith(b"\n"):
                        break
                    row = _parse(line, self.dimension + 1)
                    offset = position.offset + len(line)
                    if row is None:
                        position = Position(position.samples, offset, position.skipped + 1)
                    else:
                        position = Position(position.samples + 1, offset, position.skipped)
                        rows.append(row)
                        ends.append(position)
        except OSError as error:
            raise PsofedError(f"cannot read {self.path}: {error.strerror}") from None
        return collect(rows, ends, self.dimension, position)


@dataclass(frozen=True)
class ParquetSource:
    """Rows of numeric columns, the target last, in one Parquet file or in the files of a folder by name."""

    path: Path
    dimension: int

    def read(self, start: Position, limit: int) -> Samples:
        """Return the rows from `start` on."""
        try:
            from pyarrow import parquet
        except ImportError:
            raise PsofedError(
                "Parquet files need pyarrow; install it with: pip install 'psofed[parquet]'"
            ) from None
        files = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        rows: list[list[float]] = []
        skip = start.samples
        for file in files:
            try:
                count = parquet.read_metadata(file).num_rows
                if skip >= count:
                    skip -= count
                    continue
                table = parquet.read_table(file).slice(skip, limit - len(rows))
            except (OSError, ValueError) as error:  # pyarrow's errors derive from these
                raise PsofedError(f"cannot read {file}: {error}") from None
            skip = 0
            if table.num_columns != self.dimension + 1:
                raise PsofedError(
                    f"{file} has {table.num_columns} columns, not dimension + 1 = {self.dimension + 1}"
                )
            columns = [column.to_numpy().astype(np.float64) for column in table.columns]
            rows.extend(np.stack(columns, axis=1).tolist())
            if len(rows) >= limit:
                break
        ends = [Position(start.samples + i + 1) for i in range(len(rows))]
        good = [i for i, row in enumerate(rows) if all(map(math.isfinite, row))]
        end = ends[-1] if ends else start
        return collect([rows[i] for i in good], [ends[i] for i in good], self.dimension, end)


@dataclass(frozen=True)
class GeneratorSource:
    """What a function ``name(partition, start)`` yields: pairs (x, y) from sample `start` on.

    Every round is a new process, so the function must be able to begin anywhere; with a seed for each
    sample, say ``numpy.random.default_rng((seed, partition, n))``, that is easy.
    """

    module: str
    function: str
    dimension: int
    partition: int

    def read(self, start: Position, limit: int) -> Samples:
        """Return the next samples the function yields."""
        rows, ends = [], []
        for pair in itertools.islice(self._stream(start.samples), limit):
            x, y = pair
            inputs = np.asarray(x, dtype=np.float64).ravel()
            if inputs.size != self.dimension:
                raise PsofedError(
                    f"{self.module}:{self.function} yields {inputs.size} inputs, not {self.dimension}"
                )
            rows.append(np.append(inputs, float(y)))
            ends.append(Position(start.samples + len(rows)))
        return collect(rows, ends, self.dimension, ends[-1] if ends else start)

    def _stream(self, start: int) -> Iterator[Any]:
        try:
            function = getattr(importlib.import_module(self.module), self.function)
        except (ImportError, AttributeError) as error:
            raise PsofedError(f"cannot load {self.module}:{self.function}: {error}") from None
        stream: Iterable[Any] = function(self.partition, start)
        return iter(stream)


def _parse(line: bytes, count: int) -> list[float] | None:
    try:
        row = [float(cell) for cell in line.decode("ascii").replace(";", ",").replace("\t", ",").split(",")]
    except ValueError:  # UnicodeDecodeError is one
        return None
    return row if len(row) == count and all(map(math.isfinite, row)) else None


def collect(
    rows: Sequence[Sequence[float] | FloatArray],
    ends: list[Position],
    dimension: int,
    end: Position,
    problem: str = "",
) -> Samples:
    """Return rows of inputs and target as samples."""
    table = np.array(rows, dtype=np.float64).reshape(len(rows), dimension + 1)
    return Samples(table[:, :-1], table[:, -1], tuple(ends), end, problem)
