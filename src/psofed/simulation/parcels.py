"""Send your own data to the workers of an executor once, however many tasks use it.

A task is pickled without the rows, which travel separately: to other processes of this machine in one temporary file
that each of them reads once, to a Dask cluster with ``scatter``. Threads share the memory anyway, and other executors
get the rows with every task.
"""

import io
import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from psofed.data.own_data import DataSource, OwnData

R = TypeVar("R")
_FILE = "rows.pickle"


class TaskSender:
    """Submits tasks to an executor; rows that were announced to :func:`sending` travel once.

    Parameters
    ----------
    executor : Executor
        Where tasks run.
    rows : OwnData, optional
        Rows that tasks hold.
    parcel : object
        What stands for them on the way: a path, or a future of Dask's; None to send tasks as they are.
    """

    def __init__(self, executor: Executor, rows: OwnData | None, parcel: Any = None) -> None:
        self._executor, self._rows, self._parcel = executor, rows, parcel

    def submit(self, function: Callable[..., R], task: Any, *arguments: Any) -> "Future[R]":
        """Submit ``function(task, *arguments)``."""
        if self._parcel is None:
            return self._executor.submit(function, task, *arguments)
        content = pickle_without(task, self._rows)
        return self._executor.submit(_run, function, content, self._parcel, arguments)


@contextmanager
def sending(executor: Executor, rows: OwnData | DataSource | None) -> Iterator[TaskSender]:
    """Give a sender for tasks that hold `rows`; what it keeps for them is removed at the end."""
    if not isinstance(rows, OwnData):
        yield TaskSender(executor, None)
    elif isinstance(executor, ProcessPoolExecutor):
        _ = rows.digest  # else every worker computes it
        with tempfile.TemporaryDirectory(prefix="psofed-") as folder:
            file = Path(folder) / _FILE
            file.write_bytes(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))
            yield TaskSender(executor, rows, file)
    elif type(executor).__module__.partition(".")[0] == "distributed":
        _ = rows.digest
        client: Any = executor._client  # type: ignore[attr-defined]  # it has no public name
        yield TaskSender(executor, rows, client.scatter(rows, broadcast=True, hash=False))
    else:
        yield TaskSender(executor, rows)


def pickle_without(value: Any, rows: OwnData | None) -> bytes:
    """Return a pickle of a value that holds `rows`, without them."""
    buffer = io.BytesIO()
    pickler = _best_pickler()

    class WithoutRows(pickler):  # type: ignore[misc, valid-type]
        def persistent_id(self, part: Any) -> str | None:
            return _FILE if part is rows and rows is not None else None

    WithoutRows(buffer).dump(value)
    return buffer.getvalue()


def unpickle_with(content: bytes, rows: OwnData | None) -> Any:
    """Return the value that :func:`pickle_without` was given, with `rows` in their place."""

    class WithRows(pickle.Unpickler):
        def persistent_load(self, key: Any) -> Any:
            return rows

    return WithRows(io.BytesIO(content)).load()


def _run(function: Callable[..., R], content: bytes, parcel: Any, arguments: tuple[Any, ...]) -> R:
    """Put rows and task together again, on a worker, and run it."""
    rows = _read(parcel) if isinstance(parcel, Path) else parcel
    return function(unpickle_with(content, rows), *arguments)


@lru_cache(maxsize=1)
def _read(file: Path) -> OwnData:
    rows: OwnData = pickle.loads(file.read_bytes())  # our own temporary file
    return rows


def _best_pickler() -> Any:
    """Return cloudpickle's pickler, which also knows parts that a notebook defines, where Dask brought it."""
    try:
        from cloudpickle import Pickler
    except ImportError:
        return pickle.Pickler
    return Pickler
