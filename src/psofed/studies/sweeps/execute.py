"""Computes the cells that are missing, on any executor, and keeps each one as soon as it is finished.

A store is a folder with one file for each finished cell, whole or absent, checked when read.
"""

import contextlib
import hashlib
import itertools
import json
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError, missing_package
from psofed.common.files import atomic_path, write_atomically
from psofed.common.notices import notify
from psofed.common.types import ProgressCallback
from psofed.parts.registry import plugin_files
from psofed.simulation.blocks import Stopped
from psofed.simulation.parcels import sending
from psofed.studies.sweeps.cell import Cell, CellResult, compute_cell, engine_digest

# Cells under way at once on a remote executor: enough to keep a large cluster busy, not all of a huge sweep.
_REMOTE_WINDOW = 1000


class CellStore:
    """A folder of finished cells.

    A cell's file is named after its key, a digest of scenario, seed, trials, tail, version and the engine's
    sources. It is written beside its place and moved there, so a killed process leaves no half a cell. It is a
    line of JSON behind its SHA-256, so a damaged one is noticed, counted and computed again.

    Parameters
    ----------
    folder : path
        Made when the first cell is kept.

    Attributes
    ----------
    damaged : list of Path
        Files that were found damaged so far.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder: Path = Path(folder)
        self.damaged: list[Path] = []
        for place in (self.folder, *self.folder.parents):
            if place.exists() and not place.is_dir():
                raise PsofedError(f"{place}: this is a file; the store needs a folder")

    def check_writable(self) -> None:
        """Refuse a folder in which nothing can be kept, before anything is computed for it."""
        probe = self.folder / "writable" if self.folder.exists() else self.folder
        with contextlib.suppress(Stopped), atomic_path(probe):
            raise Stopped  # so that neither the file nor its folders stay

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell, whether it exists or not."""
        return self.folder / f"{cell.key}.cell"

    def load(self, cell: Cell) -> CellResult | None:
        """Return the stored result of a cell, or None if it is missing or damaged."""
        path = self.path(cell)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PsofedError(f"{path}: cannot be read ({error.strerror})") from None
        # The checksum protects against damage, not against a forged file, on which JSON and NumPy may raise anything.
        # Such a cell is computed again, like a damaged one, and so is one that was renamed to another cell's key.
        with contextlib.suppress(Exception):
            digest, text = content.split(b"\n", 1)
            plain = json.loads(text) if hashlib.sha256(text).hexdigest().encode() == digest else {}
            result = CellResult.from_plain(plain["result"])
            is_whole = result.trials == cell.trials or (cell.precision is not None and 0 < result.trials < cell.trials)
            if plain["cell"] == json.loads(json.dumps([cell.identity, cell.seed])) and is_whole:
                return result
        self.damaged.append(path)
        return None

    def save(self, cell: Cell, result: CellResult) -> None:
        """Keep a result."""
        text = json.dumps({"cell": [cell.identity, cell.seed], "result": result.to_plain()}).encode()
        digest = hashlib.sha256(text).hexdigest().encode()
        write_atomically(self.path(cell), digest + b"\n" + text, mode=0o666)


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
    threads = threads or os.cpu_count() or 1
    unique = {cell.key: cell for cell in cells}
    loaded = {} if store is None else {key: store.load(cell) for key, cell in unique.items()}
    results = {key: result for key, result in loaded.items() if result is not None}
    missing = {key: cell for key, cell in unique.items() if key not in results}
    total, kept_before = len(unique), len(results)

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
        from distributed.comm.addressing import get_address_host_port
    except ImportError:
        raise missing_package("--cluster", "Dask", "cluster") from None
    try:
        # A client that nobody answers stays behind, with its thread.
        socket.create_connection(get_address_host_port(address), timeout=10).close()
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
        self.is_kept: bool = is_kept


def _compute(
    cells: list[Cell], threads: int, executor: Executor | None, report: ProgressCallback
) -> Iterator[tuple[Cell, CellResult]]:
    """Yield cells as they are finished; on any way out, end those under way."""
    if not cells:
        return
    stop, partly, done = threading.Event(), dict[str, float](), 0
    window = 2 * threads if executor is None else _REMOTE_WINDOW
    waiting, running = iter(cells), dict[Future[CellResult], Cell]()

    with sending(executor, cells[0].scenario.data.rows, threads, stop) as submit:
        while True:
            for cell in itertools.islice(waiting, window - len(running)):
                watch = (_watch(cell, partly, stop),) if executor is None else ()
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
            report(done + sum(list(partly.values())), len(cells))


def _watch(cell: Cell, partly: dict[str, float], stop: threading.Event) -> ProgressCallback:
    def update(done: float, total: int) -> None:
        if stop.is_set():
            raise Stopped
        partly[cell.key] = min(done / total, 0.99)

    return update
