"""Report of reproduced figures: the answer, and our verdicts on the paper's claims.

The terminal prints it; the page (:mod:`psofed.paper.page`) shows its headline and tables around the charts.
"""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from psofed._version import __version__
from psofed.paper.charts import describe_print
from psofed.paper.claims import Claim
from psofed.paper.model import FigureData, Reproduction
from psofed.paper.published import published_table
from psofed.paper.typeset import decibels
from psofed.render import Column, Kind, NextStep, Report, Table
from psofed.render.numbers import listed

ROUGH = "A quick run with few trials: differences near the noise are rough."


def reproduction_report(reproduction: Reproduction, claims: list[Claim], page: Path) -> Report:
    """Return the answer to the paper's question, the figures, and the verdict on every claim; `page` has them all."""
    figures = reproduction.figures.values()
    error = Column("largest standard error", Kind.NUMBER, digits=2, unit="dB")
    columns = (Column("figure"), Column(""), Column("trials", Kind.COUNT), error)
    rows = tuple((data.name, data.title, data.trials, data.worst_standard_error_db) for data in figures)
    distances = (
        f"{data.name}: the simulation of {words} is {distance}."
        for data in figures
        for uplink, words in (("same", "the equations"), ("redrawn", "the system of the analysis"))
        if (distance := describe_print(data, uplink))
    )
    verdicts = (
        f"Claim {number}: {claim.statement} → {claim.finding}{'' if claim.agrees else f' ({claim.outcome})'}"
        for number, claim in enumerate(claims, start=1)
    )
    changed = ", ".join(f"{name} = {value}" for name, value in reproduction.changes.items())
    return Report(
        answer(reproduction.figures),
        f"Not the paper's scenario: {changed}." if changed else "",
        tables=(Table("Figures", columns, rows),),
        notes=(*((ROUGH,) if reproduction.quality.quick else ()), *distances, *verdicts),
        next_step=NextStep("Open the figures and the verdicts", str(page)),
    )


def answer(figures: Mapping[str, FigureData]) -> str:
    """Answer the paper's question, whether sharing less keeps the fleet accurate when clients are Byzantine."""
    if "fig1" not in figures:
        names = listed([name.replace("fig", "figure ") for name in figures], most=9)
        return f"This is {names} only; `psofed reproduce fig1` compares PSO-Fed with its rivals."
    data = figures["fig1"]
    ours, full = (
        data.select(kind="simulation", uplink="same", label=label)[0] for label in ("PSO-Fed", "Online-Fed")
    )
    base, lower = data.base, bool(ours.y[-1] < full.y[-1])
    return (
        f"{'Yes' if lower else 'No'}. With {ours.x[-1]:g} of {base.num_clients} clients Byzantine, sharing "
        f"{base.num_shared} of {base.dimension} parameters (PSO-Fed) has a test MSE of "
        f"{decibels(float(ours.y_db[-1]))}. Online-Fed shares all of them {base.dimension // base.num_shared} times "
        f"less often, on the same traffic, and comes to {decibels(float(full.y_db[-1]))}: "
        f"{full.y[-1] / ours.y[-1]:.1f} times the error."
    )


def run_table(reproduction: Reproduction) -> Table:
    """Return how the figures were made: times, quality, machine and versions."""
    facts = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "wall time": f"simulation {reproduction.simulation_seconds:.1f} s, theory {reproduction.theory_seconds:.1f} s",
        "cells": f"{reproduction.computed_cells} simulated in this run, {reproduction.cells} in all",
        **({"changed": str(reproduction.changes)} if reproduction.changes else {}),
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
