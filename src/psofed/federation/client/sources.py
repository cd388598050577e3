"""Where a client's samples come from: a table that grows, or a Python generator.

A source hands out the samples from a position on, as far as they have arrived. The position is part of the
client's state, so a sample is learned once, whatever is restarted.

========================  ==========================================================================
``readings.csv``          a table (:mod:`psofed.federation.client.columns`) that is appended to
``readings.parquet``      a Parquet file that is replaced by longer ones, or a folder that gains files
``package.module:name``   a function ``name(partition, start)`` that yields (x, y) from sample `start` on
========================  ==========================================================================
"""

import importlib
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.types import FloatArray
from psofed.federation.protocol.column_names import ColumnNames, listed

_MAX_SAMPLES, _MAX_NUMBERS = 1_000_000, 100_000_000

LARGEST = 1e100
"""Values beyond this are no samples: the sums of squares that scale the data would overflow."""


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
        Bytes of the file, or rows of Parquet, read so far.
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
        ...


@runtime_checkable
class NamedSource(Source, Protocol):
    """A source that knows whether its columns have names, and finds those of a run."""

    def choose(self, columns: ColumnNames | None) -> Source:
        """Return the same source with the run's columns in the run's order, or refuse; None: they have no names."""
        ...


def source_of_run(source: Source, columns: ColumnNames | None) -> Source:
    """Return `source` with the columns of a run; a PsofedError says what does not fit."""
    if isinstance(source, NamedSource):
        return source.choose(columns)
    if columns is not None:
        raise PsofedError(f"this node's columns have no names; the run's columns are {columns}")
    return source


def open_source(name: str, dimension: int, partition: int = 0) -> Source:
    """Return the source called `name`: a CSV or Parquet file, a folder of these, or ``module:function``."""
    from psofed.federation.client.columns import TableSource

    path = Path(name)
    if path.suffix in (".csv", ".txt", ".tsv", ".parquet", ".pq") or path.exists():
        return TableSource(path)
    module, _, function = name.partition(":")
    if module and function.isidentifier():
        return GeneratorSource(module, function, dimension, partition)
    raise InvalidValueError("data", name, "a .csv file, a .parquet file or folder, or module:function")


@dataclass(frozen=True)
class GeneratorSource:
    """Samples from a function ``name(partition, start)`` that yields pairs (x, y) from sample `start` on.

    x is a sequence of numbers, or a mapping by feature name in a run whose columns have names.

    A node may be restarted at any time, so the function must be able to begin anywhere; with a seed for each
    sample, say ``numpy.random.default_rng((seed, partition, n))``, that is easy.
    """

    module: str
    function: str
    dimension: int
    partition: int
    features: tuple[str, ...] = ()

    def choose(self, columns: ColumnNames | None) -> "GeneratorSource":
        """Return the same source, whose function must yield mappings if the columns have names."""
        return replace(self, features=() if columns is None else columns.features)

    def read(self, start: Position, limit: int) -> Samples:
        """Return the next samples the function yields."""
        inputs, targets = [], []
        for x, y in itertools.islice(self.load()(self.partition, start.samples), limit):
            inputs.append(np.asarray(self._values(x), dtype=np.float64).ravel())
            if inputs[-1].size != self.dimension:
                raise PsofedError(
                    f"{self.module}:{self.function} yields {inputs[-1].size} inputs, not {self.dimension}"
                )
            targets.append(float(y))
        table = np.reshape(inputs, (len(inputs), self.dimension))
        return Samples(table, np.array(targets), Position(start.samples + len(targets)))

    def _values(self, x: Any) -> Any:
        """Return the inputs in the run's order."""
        who = f"{self.module}:{self.function}"
        if isinstance(x, Mapping) != bool(self.features):
            names = listed(self.features)
            raise PsofedError(
                f"{who} yields x without names; the run's features are {names}: yield a mapping"
                if names
                else f"{who} yields named columns, the run's have no names: add --features to `federation run`"
            )
        if not self.features:
            return x
        if lacking := [name for name in self.features if name not in x]:
            raise PsofedError(f"{who} yields no {listed(lacking)}")
        return [x[name] for name in self.features]

    def load(self) -> Callable[[int, int], Iterable[Any]]:
        """Return the function; its module may lie in the current folder."""
        if (folder := str(Path.cwd())) not in sys.path:
            sys.path.append(folder)
        try:
            function: Callable[[int, int], Iterable[Any]] = getattr(importlib.import_module(self.module), self.function)
        except (ImportError, AttributeError) as error:
            raise PsofedError(f"cannot load {self.module}:{self.function}: {error}") from None
        return function
