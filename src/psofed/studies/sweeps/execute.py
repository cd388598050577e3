"""Computes the cells that are missing, on any executor, and keeps each one as soon as it is finished."""

import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from psofed.common.errors import PsofedError, missing_package
from psofed.common.notices import notify
from psofed.common.types import ProgressCallback
from psofed.common.validation import check_integer
from psofed.parts.registry import plugin_files
from psofed.simulation.parcels import sending
from psofed.studies.sweeps.cell import Cell, CellResult, compute_cell, engine_digest
from psofed.studies.sweeps.store import CellStore

# Cells under way at once on a remote executor: enough to keep a large cluster busy, not all of a huge sweep.
_REMOTE_WINDOW = 1000


def run_cells(
    cells: Sequence[Cell],
    *,
    threads: int | None = None,
    executor: Executor | None = None,
    store: CellStore | None = None,
    progress: ProgressCallback | None = None,
) -> list[CellResult]:
    """Return the result of every cell, in their order; equal cells are computed once.

    Parameters
    ----------
    cells : sequence of Cell
        What to compute.
    threads : int, optional
        Cells computed at once on this machine; all cores by default.
    executor : concurrent.futures.Executor, optional
        Where cells are computed instead: processes, or a Dask cluster's ``Client.get_executor()``.
    store : CellStore, optional
        Cells kept there are not computed; finished ones are kept there at once.
    progress : callable, optional
        Called now and then with (done, total) cells; those under way count in part.

    Raises
    ------
    SweepInterrupted
        A KeyboardInterrupt that says how many cells are finished, and kept in the store if there is one.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> cell = Cell(Scenario(num_clients=6, dimension=2, iterations=50), trials=3)
    >>> first, second = run_cells([cell, cell])
    >>> first is second
    True
    """
    threads = check_integer("threads", threads if threads is not None else (os.cpu_count() or 1), 1)
    results: dict[str, CellResult] = {}
    missing: dict[str, Cell] = {}
    for cell in cells:
        if cell.key in results or cell.key in missing:
            continue
        kept = store.load(cell) if store is not None else None
        if kept is not None:
            results[cell.key] = kept
        else:
            missing[cell.key] = cell
    total, kept_before = len(results) + len(missing), len(results)

    def report(done: float, _: int) -> None:
        if progress is not None:
            progress(kept_before + done, total)

    report(0, 0)
    if store is not None and missing:
        store.check_writable()
    # The longest first, so that no core waits for a long last one.
    order = sorted(missing.values(), key=lambda cell: cell.cost, reverse=True)
    try:
        for cell, result in _compute(order, threads, executor, report):
            if result.engine != engine_digest():
                raise PsofedError(
                    "a worker runs a different version of psofed; install the same version on all machines"
                )
            if store is not None:
                store.save(cell, result)
            results[cell.key] = result
    except PsofedError:
        if store is not None:
            store.remove_if_empty()
        raise
    except KeyboardInterrupt:
        # One may have been saved and not been counted when the signal came.
        left = (cell for cell in missing.values() if cell.key not in results)
        saved = sum(store.load(cell) is not None for cell in left) if store is not None else 0
        raise SweepInterrupted(len(results) + saved, total, store is not None) from None
    return [results[cell.key] for cell in cells]


@contextmanager
def connect(address: str | None) -> Iterator[Executor | None]:
    """Give the executor of the Dask cluster at `address`, or None for this machine's threads."""
    if address is None:
        yield None
        return
    try:
        import distributed
    except ImportError:
        raise missing_package("--cluster", "Dask", "cluster") from None
    try:
        _knock(address)  # a client that nobody answers stays behind, with its thread
        # Not the default of the process, which may have a client already.
        client: Any = distributed.Client(address, timeout=10, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise PsofedError(f"--cluster {address}: no Dask scheduler answers there ({error})") from None
    if not client.scheduler_info()["workers"]:
        notify(f"the cluster at {address} has no workers; waiting for one")
    try:
        client.wait_for_workers(1)
        for file in plugin_files():
            client.upload_file(file, load=False)  # workers need not have it installed
        yield client.get_executor(pure=False)
    finally:
        client.close()


def _knock(address: str) -> None:
    """See that a scheduler listens at `address` (OSError or ValueError if not)."""
    import asyncio

    from distributed.comm.core import connect as open_comm

    async def open_and_close() -> None:
        comm: Any = await open_comm(address, timeout=10)  # type: ignore[no-untyped-call]
        await comm.close()

    # In a separate thread, because a notebook's thread already runs an event loop.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(open_and_close())).result()


class SweepInterrupted(KeyboardInterrupt):
    """A sweep was stopped by hand; its text says what is kept.

    Examples
    --------
    >>> print(SweepInterrupted(5, 20, True))
    interrupted: 5 of 20 points kept; run again to continue
    """

    def __init__(self, done: int, total: int, is_kept: bool) -> None:
        after = "kept; run again to continue" if is_kept else "were finished, but not kept (there is no store)"
        super().__init__(f"interrupted: {done} of {total} points {after}")
        self.done: int = done
        self.total: int = total
        self.is_kept: bool = is_kept


class _Stopped(Exception):  # noqa: N818 (it is no error)
    """Ends a cell nobody waits for any more."""


def _compute(
    cells: list[Cell], threads: int, executor: Executor | None, report: ProgressCallback | None
) -> Iterator[tuple[Cell, CellResult]]:
    """Yield cells as they are finished; on any way out, end those under way."""
    if not cells:
        return
    stop = threading.Event()
    partly: dict[str, float] = {}
    done = 0
    local = executor is None
    waiting = iter(cells)
    running: dict[Future[CellResult], Cell] = {}

    with sending(executor, cells[0].scenario.data.rows, threads, stop) as submit:
        while True:
            for cell in itertools.islice(waiting, (2 * threads if local else _REMOTE_WINDOW) - len(running)):
                watch = (_watch(cell, partly, stop),) if local else ()
                running[submit(compute_cell, cell, *watch)] = cell
            if not running:
                return
            finished, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in finished:
                cell = running.pop(future)
                result = future.result()
                done += 1
                partly.pop(cell.key, None)
                yield cell, result
            if report is not None:
                report(done + sum(list(partly.values())), len(cells))


def _watch(cell: Cell, partly: dict[str, float], stop: threading.Event) -> ProgressCallback:
    def update(done: float, total: int) -> None:
        if stop.is_set():
            raise _Stopped
        partly[cell.key] = min(done / total, 0.99)

    return update
