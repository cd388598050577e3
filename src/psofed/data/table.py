"""A table with one row per observation, split into clients: from a file, a data frame or arrays, with validation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.suggest import did_you_mean
from psofed.common.types import FloatArray
from psofed.data.frames import TableFrame, read_frame
from psofed.data.values import client_name, is_text, is_time, number, shown

if TYPE_CHECKING:
    import pandas

# Number of rows at the start that decide whether a column holds numbers, times or text.
JUDGED_ROWS = 1000
_MOST_NAMES = 12  # shown in an error
_FEWEST_VALUES = 10  # of a column in which one may stand out


@dataclass(frozen=True, eq=False)
class ClientTable:
    """Every client's rows in the order of the file.

    Attributes
    ----------
    path : str
        Where they come from.
    file : str
        The same as an absolute path; empty if they do not come from a file.
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
    left_out : mapping from str to str
        Columns that are not numbers and were not asked for, and what they hold instead.
    decimal_commas : tuple of str
        Columns whose numbers have decimal commas.
    out_of_order : mapping from str to str
        Columns of times in whose order the rows are not, with a client for which they are not.
    times : tuple of arrays (rows_k,)
        Seconds since 1970 in the first column of times, if any; otherwise empty.
    """

    path: str
    client_column: str
    target_column: str
    features: tuple[str, ...]
    clients: tuple[str, ...]
    inputs: tuple[FloatArray, ...]
    targets: tuple[FloatArray, ...]
    dropped: tuple[int, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    decimal_commas: tuple[str, ...] = ()
    out_of_order: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    times: tuple[FloatArray, ...] = ()

    def only(self, clients: Sequence[int]) -> "ClientTable":
        """Return the rows of some clients, by number."""
        per_client = ("clients", "inputs", "targets", "dropped", "times")
        chosen: dict[str, Any] = {
            name: tuple(of[k] for k in clients) for name in per_client if (of := getattr(self, name))
        }
        return replace(self, **chosen)

    @property
    def missing(self) -> dict[str, int]:
        """Number of missing values in each input column that has any."""
        counts = np.sum([np.isnan(x).sum(axis=0) for x in self.inputs], axis=0)
        return {name: int(count) for name, count in zip(self.features, counts, strict=True) if count}

    @property
    def missing_codes(self) -> dict[str, tuple[float, int]]:
        """Values such as −999 that seem to stand for missing ones, and in how many rows, by column.

        Each is the lowest or highest value of its column, occurs at least three times, and is further from the next
        value than all others are from each other.
        """
        found = {}
        columns = [*np.vstack(self.inputs).T, np.concatenate(self.targets)]
        for name, column in zip((*self.features, self.target_column), columns, strict=True):
            values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
            if values.size < _FEWEST_VALUES:
                continue
            for at, gap, others in (
                (0, values[1] - values[0], values[-1] - values[1]),
                (-1, values[-1] - values[-2], values[-2] - values[0]),
            ):
                if counts[at] >= 3 and gap > others:
                    found[name] = float(values[at]), int(counts[at])
        return found

    @property
    def constant(self) -> dict[str, tuple[str, ...]]:
        """Constant input columns, with the clients in which they are constant."""
        never = np.array([_is_constant(x) for x in self.inputs])
        return {
            name: tuple(client for client, is_so in zip(self.clients, never[:, j], strict=True) if is_so)
            for j, name in enumerate(self.features)
            if never[:, j].any()
        }


def read_table(
    source: "str | Path | pandas.DataFrame | Any",
    client_column: str,
    target_column: str,
    features: Sequence[str] | None = None,
) -> ClientTable:
    """Read a CSV or Parquet file, or a data frame.

    Parameters
    ----------
    source : path, pandas.DataFrame or polars.DataFrame
        Of files, ``.parquet`` and ``.pq`` are Parquet (needs pyarrow), all else is CSV with a header line; fields are
        separated by commas, semicolons or tabs, whichever the header has most of.
    client_column : str
        Whose row it is.
    target_column : str
        y.
    features : sequence of str, optional
        Columns of x; by default all others that are numbers. Times and text are left out, and
        :attr:`ClientTable.left_out` says so.

    Raises
    ------
    PsofedError
        If there is no such file or column, if a field is not a number (the row is named), or if nothing is left.
    """
    frame = _open(source, client_column)
    data = frame.data
    if isinstance(features, str):
        raise InvalidValueError("features", features, "a list of column names")
    candidates = _choose_columns(frame, client_column, target_column, features)
    if data.empty:
        raise PsofedError(f"{frame.source}: there is a header but no rows")
    owner, names = _clients(frame, client_column)
    contents = {name: _content_of(frame, name) for name in candidates if features is None}
    left_out = {name or "(unnamed)": holds for name, holds in contents.items() if holds != "numbers"}
    chosen = tuple(name for name in candidates if contents.get(name, "numbers") == "numbers")
    columns = {name: _numbers(frame, name, target_column, features is not None) for name in (target_column, *chosen)}
    if not chosen:
        listed = ", ".join(
            f"{name} ({holds}, such as {shown(frame.field(0, name))})" if holds == "text" else f"{name} ({holds})"
            for name, holds in left_out.items()
        )
        raise PsofedError(
            f"{frame.source}: no column of numbers is left for features besides {client_column} and {target_column}; "
            f"left out: {listed}"
        )
    target = columns[target_column][0]
    has_target = ~np.isnan(target)
    inputs = np.column_stack([columns[name][0] for name in chosen])
    rows = _split(owner, has_target)
    others = {str(name): column for name, column in data.items() if name not in columns and name != client_column}
    stamps = {name: times for name, column in others.items() if (times := _times(column)) is not None}
    when = next(iter(stamps.values()), None)
    return ClientTable(
        frame.source,
        client_column,
        target_column,
        chosen,
        names,
        tuple(inputs[own] for own in rows),
        tuple(target[own] for own in rows),
        tuple(np.bincount(owner[~has_target], minlength=len(names)).tolist()),
        left_out,
        tuple(name for name, (_, has_commas) in columns.items() if has_commas),
        {name: who for name in left_out if name in stamps and (who := _out_of_order(stamps[name], owner, names))},
        str(Path(source).resolve()) if isinstance(source, str | Path) else "",
        () if when is None else tuple(when[own] for own in rows),
    )


def table_from_arrays(
    inputs: ArrayLike, targets: ArrayLike, clients: ArrayLike, features: Sequence[str] | None = None
) -> ClientTable:
    """Make a table from arrays: inputs (rows, d) or (rows,), targets (rows,) and client IDs (rows,).

    Examples
    --------
    >>> table = table_from_arrays([[1.0], [2.0], [3.0]], [0.1, 0.2, 0.3], ["a", "b", "a"])
    >>> table.features, table.clients, table.inputs[0].tolist()
    (('x1',), ('a', 'b'), [[1.0], [3.0]])
    """
    import pandas

    x, y, owner = np.asarray(inputs), np.asarray(targets), np.asarray(clients)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or y.ndim != 1 or owner.ndim != 1:
        shapes = f"X {x.shape}, y {y.shape}, clients {owner.shape}"
        raise InvalidValueError("arrays", shapes, "X (rows, d), y (rows,), clients (rows,)")
    if not len(x) == len(y) == len(owner):
        raise InvalidValueError("arrays", f"{len(x)}, {len(y)} and {len(owner)} rows", "of equal length")
    names = [f"x{j + 1}" for j in range(x.shape[1])] if features is None else [str(name) for name in features]
    if len(names) != x.shape[1]:
        raise InvalidValueError("features", names, f"{x.shape[1]} names, one for each column of X")
    client, target = (_unused(name, names) for name in ("client", "y"))
    columns = {client: owner, target: y, **{name: x[:, j] for j, name in enumerate(names)}}
    if len(columns) != len(names) + 2:
        raise InvalidValueError("features", names, "distinct names")
    return read_table(pandas.DataFrame(columns), client, target, names)


def _open(source: Any, client_column: str) -> TableFrame:
    if isinstance(source, str | Path):
        return read_frame(Path(source), client_column)
    import pandas

    if isinstance(source, pandas.DataFrame):
        frame = source.set_axis([str(name) for name in source.columns], axis=1)
    elif type(source).__module__.partition(".")[0] == "polars":
        collected = source.collect() if hasattr(source, "collect") else source
        frame = pandas.DataFrame({name: collected[name].to_numpy() for name in collected.columns})
    else:
        allowed = "a path or a pandas or polars DataFrame (for arrays use psofed.from_arrays)"
        raise InvalidValueError("data", type(source).__name__, allowed)
    return TableFrame(frame.reset_index(drop=True), "DataFrame")


def _choose_columns(frame: TableFrame, client: str, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    header, source = list(frame.data.columns), frame.source
    headless = "; is the header line missing?" if any(not is_text([n]) for n in header if n) else ""
    repeated = [name for name in dict.fromkeys(header) if name and header.count(name) > 1]
    if repeated:
        times, advice = header.count(repeated[0]), headless or "; give each its own name"
        raise PsofedError(f"{source}: column {repeated[0]} appears {times} times{advice}")
    chosen = tuple(dict.fromkeys(name for name in header if name not in (client, target)))
    if features is not None:
        chosen = tuple(features)
    for name in (client, target, *chosen):
        if name not in header:
            there = ", ".join(header[:_MOST_NAMES]) + (", …" if len(header) > _MOST_NAMES else "")
            hint = headless or "." * bool(close := did_you_mean(name, header)) + close
            raise PsofedError(f"{source}: no column {name}; the columns are {there}{hint}")
    if client == target:
        raise PsofedError(f"{source}: column {client} cannot be both the client and the target")
    for name in chosen:
        if name in (client, target):
            role = "client" if name == client else "target"
            raise PsofedError(f"{source}: column {name} cannot be a feature because it is the {role}")
        if chosen.count(name) > 1:
            raise PsofedError(f"{source}: feature {name} is named {chosen.count(name)} times")
    if not chosen:
        raise PsofedError(f"{source}: no column is left for features besides {client} and {target}")
    return chosen


def _content_of(frame: TableFrame, name: str) -> str:
    """Return what a column holds: "numbers", "times", "text", or "no name" if it has none."""
    if not name:
        return "no name"
    column = frame.data[name]
    if column.dtype.kind in "biuf":
        return "numbers"
    if column.dtype.kind in "mM":
        return "times"
    start = column.iloc[:JUDGED_ROWS]
    there = start[start.notna()].tolist()
    if not is_text(there, frame.delimiter):
        return "numbers"
    times = sum(map(is_time, there))
    return "times" if 2 * times > len(there) else "text"


def _numbers(frame: TableFrame, name: str, target: str, is_named: bool) -> tuple[FloatArray, bool]:
    """Return a column as numbers, NaN where one is missing, and whether any had a decimal comma."""
    column = frame.data[name]
    has_commas = False
    if column.dtype.kind in "biuf":
        values = column.to_numpy(np.float64, na_value=np.nan)
    else:
        import pandas

        codes, distinct = pandas.factorize(column.astype(object))
        parsed = np.full(len(distinct) + 1, np.nan)  # the last is for missing values, whose code is −1
        for at, value in enumerate(distinct):
            try:
                parsed[at] = number(value, frame.delimiter)
            except ValueError as error:
                row = int(np.argmax(codes == at))
                advice = _advice(frame, name, target, is_named)
                raise _bad_field(frame, row, name, f"{error}; {advice}") from None
        values = parsed[codes]
        has_commas = any(isinstance(value, str) and "," in value for value in distinct)
        for at, value in enumerate(distinct if has_commas else ()):
            if isinstance(value, str) and "." in value and "," not in value:
                what = f"{shown(value)} has a decimal point where other rows have decimal commas"
                raise _bad_field(frame, int(np.argmax(codes == at)), name, what)
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        what = f"{shown(frame.field(row, name))} is not finite; leave it empty if it is missing"
        raise _bad_field(frame, row, name, what)
    return values, has_commas


def _advice(frame: TableFrame, name: str, target: str, is_named: bool) -> str:
    if name == target:
        return "the target must be a number, or empty where it is missing"
    if _content_of(frame, name) != "numbers":
        return f"{name} holds {_content_of(frame, name)}: leave it out of the features"
    if is_named:
        return "correct the value, or leave it empty if it is missing"
    return f"correct the value, leave it empty if it is missing, or list the features to use without {name}"


def _bad_field(frame: TableFrame, row: int, column: str, what: str) -> PsofedError:
    return PsofedError(f"{frame.source}: row {frame.line_of(row)}, column {column}: {what}")


def _clients(frame: TableFrame, column: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each row's client as a number, and the clients' names in the order of their first rows."""
    import pandas

    values = frame.data[column]
    codes, distinct = pandas.factorize(values if values.dtype.kind in "iuf" else values.astype(object))
    names: dict[str, int] = {}
    numbers = np.empty(len(distinct) + 1, np.int64)
    numbers[-1] = -1
    for at, value in enumerate(distinct):
        name = client_name(value.item() if isinstance(value, np.generic) else value)
        numbers[at] = names.setdefault(name, len(names)) if name else -1
    owner = numbers[codes]
    if (owner < 0).any():
        row = frame.line_of(int(np.argmax(owner < 0)))
        raise PsofedError(f"{frame.source}: row {row} has no client in column {column}; fill it in, or remove the row")
    return owner, tuple(names)


def _split(owner: NDArray[np.int64], keep: NDArray[np.bool_]) -> list[NDArray[Any]]:
    """Return the numbers of each client's rows, in their order."""
    order = np.argsort(owner, kind="stable")
    edges = np.cumsum(np.bincount(owner))[:-1]
    return [rows[keep[rows]] for rows in np.split(order, edges)]


def _times(column: "pandas.Series[Any]") -> FloatArray | None:
    """Return a column of times as seconds since 1970; None if it holds something else, or if one is missing."""
    import pandas

    if column.dtype.kind != "M":
        # Only ISO's order of year, month and day is unambiguous.
        if not re.match(r"\d{4}-\d\d-\d\d", str(column.iloc[0])):
            return None
        column = pandas.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
    if column.isna().any():
        return None
    return np.asarray(column.to_numpy("datetime64[ns]").astype(np.int64) / 1e9)


def _out_of_order(times: FloatArray, owner: NDArray[np.int64], names: tuple[str, ...]) -> str:
    """Return a client whose rows go back in time, or an empty string."""
    order = np.argsort(owner, kind="stable")
    back = (times[order][1:] < times[order][:-1]) & (owner[order][1:] == owner[order][:-1])
    return names[owner[order][1:][back][0]] if back.any() else ""


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _is_constant(columns: FloatArray) -> NDArray[np.bool_]:
    there = ~np.isnan(columns)
    lowest = np.where(there, columns, np.inf).min(axis=0, initial=np.inf)
    highest = np.where(there, columns, -np.inf).max(axis=0, initial=-np.inf)
    return np.asarray(lowest >= highest)
