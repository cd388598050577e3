"""Reads a table with one row per observation (CSV or Parquet) and splits it into clients; trusts nothing in it."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray

# How a missing number is written, apart from leaving it out.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "?"})
_DELIMITERS = ",;\t"
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class Table:
    """Every client's rows in the order of the file.

    Attributes
    ----------
    path : str
        Where they come from.
    client_column, target_column : str
    features : tuple of str
        Columns that are inputs.
    clients : tuple of str
        Names of the clients, in the order in which they first appear.
    inputs : tuple of arrays (rows_k, d)
        NaN where a value is missing.
    targets : tuple of arrays (rows_k,)
        Rows without a target are left out.
    dropped : tuple of int
        How many rows each client had without a target.
    """

    path: str
    client_column: str
    target_column: str
    features: tuple[str, ...]
    clients: tuple[str, ...]
    inputs: tuple[FloatArray, ...]
    targets: tuple[FloatArray, ...]
    dropped: tuple[int, ...]

    @property
    def missing(self) -> dict[str, int]:
        """How many values are missing in each input column that misses any."""
        counts = np.sum([np.isnan(x).sum(axis=0) for x in self.inputs], axis=0)
        return {name: int(count) for name, count in zip(self.features, counts, strict=True) if count}

    @property
    def constant(self) -> dict[str, tuple[str, ...]]:
        """Input columns that never change, with the clients in which they do not."""
        found: dict[str, tuple[str, ...]] = {}
        for j, name in enumerate(self.features):
            clients = tuple(
                c for c, x in zip(self.clients, self.inputs, strict=True) if _is_constant(x[:, j])
            )
            if clients:
                found[name] = clients
        return found


def read_table(
    path: str | Path, client_column: str, target_column: str, features: Sequence[str] | None = None
) -> Table:
    """Read a CSV or Parquet file.

    Parameters
    ----------
    path : path
        ``.parquet`` and ``.pq`` are Parquet (needs pyarrow), all else is CSV with a header line; fields are
        separated by commas, semicolons or tabs, whichever the header has.
    client_column : str
        Whose row it is.
    target_column : str
        y.
    features : sequence of str, optional
        Columns of x; by default all others.

    Raises
    ------
    PsofedError
        If there is no such file or column, if a field is not a number (the row is named), or if nothing is left.
    """
    path = Path(path)
    header, rows = _read_parquet(path) if path.suffix.lower() in _PARQUET else _read_csv(path)
    names = _choose_columns(path, header, client_column, target_column, features)
    client_at, target_at = header.index(client_column), header.index(target_column)
    feature_at = [header.index(name) for name in names]
    inputs: dict[str, list[list[float]]] = {}
    targets: dict[str, list[float]] = {}
    dropped: dict[str, int] = {}
    for number, row in rows:
        client = str(row[client_at]).strip() if row[client_at] is not None else ""
        if not client:
            raise PsofedError(f"{path}: row {number} names no client in column {client_column}")
        target = _number(path, number, target_column, row[target_at])
        dropped.setdefault(client, 0)
        if math.isnan(target):
            dropped[client] += 1
            continue
        values = [_number(path, number, name, row[at]) for name, at in zip(names, feature_at, strict=True)]
        inputs.setdefault(client, []).append(values)
        targets.setdefault(client, []).append(target)
    if not dropped:
        raise PsofedError(f"{path}: has a header but no rows")
    clients = tuple(dropped)
    for client in clients:
        if client not in inputs:
            raise PsofedError(f"{path}: client {client} has no row with a value of {target_column}")
    return Table(
        str(path),
        client_column,
        target_column,
        names,
        clients,
        tuple(np.array(inputs[client]) for client in clients),
        tuple(np.array(targets[client]) for client in clients),
        tuple(dropped[client] for client in clients),
    )


def read_header(path: str | Path) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file."""
    path = Path(path)
    return (_read_parquet(path) if path.suffix.lower() in _PARQUET else _read_csv(path))[0]


Rows = Iterator[tuple[int, Sequence[Any]]]


def _read_csv(path: Path) -> tuple[list[str], Rows]:
    try:
        # Undecodable bytes would surface row by row; a strict read at once says it clearly.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise PsofedError(f"{path}: is not UTF-8 text") from None
    except OSError as error:
        raise PsofedError(f"{path}: cannot be read ({error.strerror})") from None
    lines = text.splitlines()
    if not lines or not lines[0].strip():
        raise PsofedError(f"{path}: is empty; a header line with the columns' names must come first")
    delimiter = max(_DELIMITERS, key=lines[0].count)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
    except csv.Error as error:
        raise PsofedError(f"{path}: the header is not CSV ({error})") from None
    return header, _csv_rows(path, reader, len(header))


def _csv_rows(path: Path, reader: Any, width: int) -> Rows:
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise PsofedError(f"{path}: row {reader.line_num} is not CSV ({error})") from None
        if not row:
            continue
        if len(row) != width:
            raise PsofedError(f"{path}: row {reader.line_num} has {len(row)} fields, the header has {width}")
        yield reader.line_num, row


def _read_parquet(path: Path) -> tuple[list[str], Rows]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table as read
    except ImportError:
        raise PsofedError(
            f'{path}: Parquet needs pyarrow, which is not installed; pip install "psofed[parquet]"'
        ) from None
    try:
        table = read(path)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except (ArrowException, OSError) as error:
        raise PsofedError(f"{path}: is not Parquet ({str(error).splitlines()[0]})") from None
    columns = [column.to_pylist() for column in table.columns]
    return list(table.column_names), enumerate(zip(*columns, strict=True), start=1)


def _choose_columns(
    path: Path, header: list[str], client: str, target: str, features: Sequence[str] | None
) -> tuple[str, ...]:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise PsofedError(f"{path}: column {repeated[0]} appears {header.count(repeated[0])} times")
    chosen = (
        tuple(features) if features is not None else tuple(n for n in header if n not in (client, target))
    )
    for name in (client, target, *chosen):
        if name not in header:
            raise PsofedError(f"{path}: no column {name}; there are {', '.join(header)}")
    if client == target:
        raise PsofedError(f"{path}: column {client} cannot be both client and target")
    for name in chosen:
        if name in (client, target):
            raise PsofedError(f"{path}: column {name} cannot be a feature, it is the {_role(name, client)}")
        if chosen.count(name) > 1:
            raise PsofedError(f"{path}: feature {name} is named {chosen.count(name)} times")
    if not chosen:
        raise PsofedError(f"{path}: no column is left for features besides {client} and {target}")
    return chosen


def _role(name: str, client: str) -> str:
    return "client" if name == client else "target"


def _number(path: Path, row: int, column: str, value: Any) -> float:
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise PsofedError(
            f"{path}: row {row}, column {column}: {value!r} is not a number; "
            "choose columns of numbers with --features"
        ) from None
    if math.isinf(number):
        raise PsofedError(f"{path}: row {row}, column {column}: {value!r} is not finite")
    return number


def _is_constant(column: Iterable[float]) -> bool:
    present = [value for value in column if not math.isnan(value)]
    return not present or min(present) == max(present)
