"""Send your own data to the workers of an executor once, however many tasks use it.

A task is pickled without the rows, which travel separately: to other processes of this machine in one temporary file
that each of them reads once, to a Dask cluster with ``scatter``. Threads share the memory anyway, and other executors
get the rows with every task.
"""

import io
import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any, TypeVar
from weakref import WeakSet

from psofed.data.own_data import DataSource, OwnData

R = TypeVar("R")
_FILE = "rows.pickle"


class TaskSender:
    """Submits tasks to `executor`; `rows` that tasks hold travel once, as the `parcel` of :func:`_parcel`."""

    def __init__(self, executor: Executor, rows: OwnData | DataSource | None, parcel: Any) -> None:
        self._executor, self._rows, self._parcel = executor, rows, parcel
        self._futures: WeakSet[Future[Any]] = WeakSet()

    def submit(self, function: Callable[..., R], task: Any, *arguments: Any) -> "Future[R]":
        """Submit ``function(task, *arguments)``."""
        if self._parcel is None:
            future = self._executor.submit(function, task, *arguments)
        else:
            content = pickle_without(task, self._rows)
            future = self._executor.submit(_run, function, content, self._parcel, arguments)
        self._futures.add(future)
        return future

    def cancel(self) -> None:
        """Cancel the tasks that have not begun."""
        for future in list(self._futures):
            future.cancel()


@contextmanager
def sending(
    executor: Executor | None, rows: OwnData | DataSource | None, threads: int = 1, stop: Event | None = None
) -> Iterator[TaskSender]:
    """Give a sender of tasks that hold `rows` to `executor`, or to new threads.

    At the end it sets `stop`, which asks running tasks to end, cancels the others and removes the rows' parcel.
    """
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(threads)) if executor is None else executor
        sender = TaskSender(pool, rows, stack.enter_context(_parcel(pool, rows)))
        stack.callback(sender.cancel)
        if stop is not None:
            stack.callback(stop.set)
        yield sender


@contextmanager
def _parcel(executor: Executor, rows: OwnData | DataSource | None) -> Iterator[Any]:
    """Send rows ahead, and give what stands for them."""
    is_dask = type(executor).__module__.partition(".")[0] == "distributed"
    if not isinstance(rows, OwnData) or not (is_dask or isinstance(executor, ProcessPoolExecutor)):
        yield None
        return
    _ = rows.digest  # else every worker computes it
    if is_dask:
        client: Any = executor._client  # type: ignore[attr-defined]  # it has no public name
        yield client.scatter(rows, broadcast=True, hash=False)
        return
    with tempfile.TemporaryDirectory(prefix="psofed-") as folder:
        file = Path(folder) / _FILE
        file.write_bytes(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL))
        yield file


def pickle_without(value: Any, rows: Any) -> bytes:
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
