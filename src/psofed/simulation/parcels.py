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
from typing import Any
from weakref import WeakSet

from psofed.data.own_data import DataSource, OwnData

_FILE = "rows.pickle"


@contextmanager
def sending(
    executor: Executor | None, rows: OwnData | DataSource | None, threads: int = 1, stop: Event | None = None
) -> Iterator[Callable[..., "Future[Any]"]]:
    """Give ``submit(function, task, *arguments)`` of tasks that hold `rows` to `executor`, or to new threads.

    At the end it sets `stop`, which asks running tasks to end, cancels the others and removes the rows' parcel.
    """
    futures: WeakSet[Future[Any]] = WeakSet()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(threads)) if executor is None else executor
        parcel = stack.enter_context(_parcel(pool, rows))

        def submit(function: Callable[..., Any], task: Any, *arguments: Any) -> "Future[Any]":
            if parcel is None:
                future = pool.submit(function, task, *arguments)
            else:
                future = pool.submit(_run, function, pickle_without(task, rows), parcel, arguments)
            futures.add(future)
            return future

        try:
            yield submit
        finally:
            if stop is not None:
                stop.set()
            for future in list(futures):
                future.cancel()


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


def _run(function: Callable[..., Any], content: bytes, parcel: Any, arguments: tuple[Any, ...]) -> Any:
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
