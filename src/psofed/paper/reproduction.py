"""Saves reproduced figures: pictures, data, verdicts on the claims, and the page with all of them."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from psofed.common.files import write_json
from psofed.common.types import ProgressCallback
from psofed.paper.charts import save_pictures
from psofed.paper.claims import check_claims
from psofed.paper.page import write_page
from psofed.paper.reproduce import Reproduction
from psofed.paper.verdict import Claim

# Drawing is as much work as all the rest of saving; more helpers than this spend their time on starting.
_MOST_HELPERS = 3


def save_reproduction(
    reproduction: Reproduction,
    folder: Path,
    executor: Executor | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[list[Claim], Path]:
    """Write every figure as SVG, PNG, JSON, NetCDF and CSV, claims.json and report.html.

    Parameters
    ----------
    reproduction : Reproduction
        What was made.
    folder : Path
        Where the files go.
    executor : Executor, optional
        Draws the pictures while everything else is written; see :func:`drawing_helpers`. Without one they are drawn
        here.
    progress : callable, optional
        Called with the number of steps done, and of all.

    Returns
    -------
    claims : list of Claim
        Those whose figures are there.
    page : Path
        The report.
    """
    started = time.perf_counter()
    steps = itertools.count(1)

    def step() -> None:
        if progress is not None:
            progress(next(steps), 2 * len(reproduction.figures) + 2)

    pending = {}
    if executor is not None:
        pending = {
            name: executor.submit(save_pictures, data.without_trials(), folder)
            for name, data in reproduction.figures.items()
        }
    for data in reproduction.figures.values():
        data.save_data(folder)
        step()
    claims = check_claims(reproduction.figures)
    write_json(folder / "claims.json", [claim.to_json() for claim in claims], mode=0o666)
    step()
    for name, data in reproduction.figures.items():
        try:
            if name in pending:
                pending[name].result()
            else:
                save_pictures(data, folder)
        except BrokenProcessPool:  # a helper was killed, say for want of memory
            save_pictures(data, folder)
        step()
    seconds = reproduction.simulation_seconds + reproduction.theory_seconds + time.perf_counter() - started
    page = write_page(reproduction, claims, seconds, folder)
    step()
    return claims, page


@contextmanager
def drawing_helpers(figures: int) -> Iterator[Executor | None]:
    """Start processes that draw, if there are cores and figures for them; yields None otherwise.

    Matplotlib holds the interpreter's lock all the time, so threads would not do.
    """
    helpers = min(_MOST_HELPERS, figures - 1, (os.cpu_count() or 1) - 1)
    if helpers < 1:
        yield None
        return
    try:
        pool = ProcessPoolExecutor(helpers, mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    except OSError:  # no semaphores on this machine
        yield None
        return
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
