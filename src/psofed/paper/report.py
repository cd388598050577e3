"""Report of reproduced figures: the answer, the verdicts on the paper's claims, and what to remember.

The terminal prints it; the page (:mod:`psofed.paper.page`) shows its headline, notes and tables around the charts.
"""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from psofed._version import __version__
from psofed.paper.findings import answer, find_findings
from psofed.paper.published import published_table
from psofed.paper.reproduce import Reproduction
from psofed.paper.verdict import Claim
from psofed.render import Column, Kind, NextStep, Report, Table
from psofed.render.numbers import counted

ROUGH = "A quick run with few trials: differences near the noise are rough."
_ERROR = Column("largest standard error", Kind.NUMBER, digits=2, unit="dB")


def reproduction_report(reproduction: Reproduction, claims: list[Claim], page: Path | None = None) -> Report:
    """Return the answer to the paper's question, the figures, and the verdict on every claim.

    `page` is the file with the figures, if it has been written.
    """
    figures = reproduction.figures
    columns = (Column("figure"), Column(""), Column("trials", Kind.COUNT), _ERROR)
    rows = tuple(
        (data.name, data.title, data.trials, data.worst_standard_error_db) for data in figures.values()
    )
    verdicts = tuple((claim.verdict, claim.statement, claim.condition) for claim in claims)
    verdict_columns = (Column("verdict"), Column("claim"), Column("condition"))
    return Report(
        answer(figures),
        tables=(
            Table("Figures", columns, rows),
            Table(f"{counted(len(claims), 'claim')} checked", verdict_columns, verdicts),
        ),
        notes=(
            *((ROUGH,) if reproduction.quality.quick else ()),
            *(f"{finding.title}. {finding.text}" for finding in find_findings(figures)),
        ),
        next_step=None if page is None else NextStep("Open the figures and the verdicts", str(page)),
    )


def run_table(reproduction: Reproduction, seconds: float) -> Table:
    """Return how the figures were made: times, quality, machine and versions."""
    facts = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "wall time": f"{seconds:.1f} s (simulation with theory beside it {reproduction.simulation_seconds:.1f} s, "
        f"rest of the theory {reproduction.theory_seconds:.1f} s)",
        "cells": f"{reproduction.computed_cells} simulated in this run, {reproduction.cells} in all",
        "quality": "quick" if reproduction.quality.quick else "full",
        "seed": str(reproduction.quality.seed),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "psofed": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "numba", "xarray", "matplotlib", "bokeh")},
        "printed points": published_table()["source"],
    }
    return Table("How it was made", (Column(""), Column("")), tuple(facts.items()))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
