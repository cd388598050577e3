"""Makes the figures and saves them: simulates every cell once, adds theory, writes pictures, data, claims and page."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from psofed.common.errors import InvalidValueError
from psofed.common.files import write_json
from psofed.common.suggest import did_you_mean
from psofed.common.types import ProgressCallback
from psofed.paper.charts import figure_chart
from psofed.paper.claims import Claim, check_claims
from psofed.paper.figures import figure_names, load_figure
from psofed.paper.model import Quality, Reproduction
from psofed.paper.report import write_page
from psofed.render.style import save_picture
from psofed.studies.sweeps import CellStore, run_cells


def choose_figures(names: Sequence[str]) -> tuple[str, ...]:
    """Return the figures meant by the names on the command line, in order; none or ``all`` means all.

    Examples
    --------
    >>> choose_figures(["fig3", "fig1"])
    ('fig1', 'fig3')
    """
    figures = figure_names()
    choices = (*figures, "all")
    for name in names:
        if name not in choices:
            raise InvalidValueError("figure", name, "one of " + ", ".join(choices), did_you_mean(name, choices))
    return figures if not names or "all" in names else tuple(name for name in figures if name in names)


def reproduce(
    names: Sequence[str],
    quality: Quality,
    *,
    changes: Mapping[str, Any] = MappingProxyType({}),
    threads: int | None = None,
    executor: Executor | None = None,
    store: CellStore | None = None,
    progress: ProgressCallback | None = None,
) -> Reproduction:
    """Make figures, of the paper's scenarios with `changes`: one sweep over the cells of all of them, then theory."""
    started = time.perf_counter()
    plans = [load_figure(name).changed(changes) for name in choose_figures(names)]
    cells = list({cell.key: cell for plan in plans for cell in plan.cells(quality)}.values())
    computed = len(cells) if store is None else sum(not store.path(cell).exists() for cell in cells)
    results = run_cells(cells, threads=threads, executor=executor, store=store, progress=progress)
    by_key = {cell.key: result for cell, result in zip(cells, results, strict=True)}
    simulated = time.perf_counter()
    figures = {plan.name: plan.build(quality, lambda cell: by_key[cell.key]) for plan in plans}
    theory_seconds = time.perf_counter() - simulated
    return Reproduction(figures, quality, simulated - started, theory_seconds, computed, len(cells), dict(changes))


def save_reproduction(
    reproduction: Reproduction,
    folder: Path,
    progress: ProgressCallback | None = None,
    *,
    width: str | None = None,
    pdf: bool = False,
) -> tuple[list[Claim], Path]:
    """Write every figure as SVG, PNG, perhaps PDF, JSON, NetCDF and CSV, claims.json and report.html.

    Returns the claims whose figures were made as in the paper, and the path of the report. `progress` is called with
    the number of files' groups written, and of all. `width` is that of the pictures, see `draw_chart`.
    """
    suffixes = (".svg", ".png", ".pdf")[: 2 + pdf]
    steps = len(reproduction.figures) + 1
    for step, data in enumerate(reproduction.figures.values(), start=1):
        data.save_data(folder)
        save_picture(figure_chart(data), folder / data.name, width, suffixes)
        if progress is not None:
            progress(step, steps)
    claims = [] if reproduction.changes else check_claims(reproduction.figures)
    write_json(folder / "claims.json", [claim.to_json() for claim in claims], mode=0o666)
    page = write_page(reproduction, claims, folder)
    if progress is not None:
        progress(steps, steps)
    return claims, page
