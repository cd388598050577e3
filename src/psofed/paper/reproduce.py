"""Makes the figures: gathers all their cells, simulates each once, adds theory."""

import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

from psofed.common.errors import InvalidValueError
from psofed.common.suggest import did_you_mean
from psofed.common.types import ProgressCallback
from psofed.paper.figures import figure_names, load_figure
from psofed.paper.model import FigureData, Quality
from psofed.paper.predictions import predict_ahead
from psofed.studies.sweeps import Cell, CellResult, CellStore, run_cells


@dataclass(frozen=True, eq=False)
class Reproduction:
    """Some figures, and what it took to make them.

    Attributes
    ----------
    figures : dict of str to FigureData
        By name.
    quality : Quality
        How much was simulated.
    simulation_seconds, theory_seconds : float
        Wall time of the simulation (with most of the theory beside it), and of the rest of the theory.
    computed_cells, cells : int
        Different cells simulated in this run, and all that the figures are made of.
    """

    figures: dict[str, FigureData]
    quality: Quality
    simulation_seconds: float
    theory_seconds: float
    computed_cells: int
    cells: int


def choose_figures(names: Sequence[str]) -> tuple[str, ...]:
    """Return the figures meant by the names on the command line, in order; none or ``all`` means all.

    Examples
    --------
    >>> choose_figures(["fig3", "fig1"])
    ('fig1', 'fig3')
    """
    known = figure_names()
    for name in names:
        if name not in (*known, "all"):
            names = (*known, "all", "resilience")
            raise InvalidValueError("figure", name, "one of " + ", ".join(names), did_you_mean(name, names))
    return known if not names or "all" in names else tuple(name for name in known if name in names)


def reproduce(
    names: Sequence[str],
    quality: Quality,
    *,
    threads: int | None = None,
    executor: Executor | None = None,
    store: CellStore | None = None,
    progress: ProgressCallback | None = None,
) -> Reproduction:
    """Make figures: one sweep over the cells of all of them, then theory."""
    plans = [load_figure(name) for name in choose_figures(names)]
    started = time.perf_counter()
    cells: list[Cell] = [cell for plan in plans for cell in plan.cells(quality)]
    keys = {cell.key: cell for cell in cells}
    computed = len(keys) if store is None else sum(not store.path(cell).exists() for cell in keys.values())
    stop = Event()
    # Theory is solved beside the simulation, which leaves the interpreter to others.
    with ThreadPoolExecutor(1) as helper:
        ahead = helper.submit(predict_ahead, keys.values(), stop)
        try:
            results = run_cells(cells, threads=threads, executor=executor, store=store, progress=progress)
        except BaseException:
            stop.set()
            raise
        ahead.result()
    by_key: dict[str, CellResult] = {cell.key: result for cell, result in zip(cells, results, strict=True)}
    simulated = time.perf_counter()
    figures = {plan.name: plan.build(quality, lambda cell: by_key[cell.key]) for plan in plans}
    return Reproduction(
        figures, quality, simulated - started, time.perf_counter() - simulated, computed, len(keys)
    )
