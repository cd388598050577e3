"""Report of reproduced figures: the answer, and our verdicts on the paper's claims.

The terminal prints it. The page, one HTML file that opens from disk with everything inside, begins with the answer and
how many of the claims hold. Then come the claims as cards and the figures, each with the table behind it;
``page.html`` is its template.
"""

import base64
import html
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from psofed._version import __version__
from psofed.common.files import write_atomically
from psofed.paper.charts import BAND, KINDS, kind_of, ordinate, shown_kinds
from psofed.paper.claims import HOLDS, PARTLY, Claim
from psofed.paper.figures import published_table
from psofed.paper.model import FigureData, Reproduction
from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.numbers import counted, fixed, listed
from psofed.scenario import UPLINKS

# Of every verdict: its sign, its class in the style sheet, and what is said of one claim and of several.
VERDICTS = {HOLDS: ("✓", "holds", "holds", "hold"), PARTLY: ("◐", "partly", "holds in part", "hold in part")}
# What every panel shows.
PANELS = {
    "same": "The equations as written",
    "redrawn": "The system of the analysis, in which the uploading clients are drawn independently",
}

ROUGH = "A quick run with few trials: differences near the noise are rough."


def reproduction_report(reproduction: Reproduction, claims: list[Claim], page: Path) -> Report:
    """Return the answer to the paper's question, the figures, and the verdict on every claim; `page` has them all."""
    figures = reproduction.figures.values()
    error = Column("largest standard error", Kind.NUMBER, digits=2, unit="dB")
    columns = (Column("figure"), Column(""), Column("trials", Kind.COUNT), error)
    rows = tuple((data.name, data.title, data.trials, data.worst_standard_error_db) for data in figures)
    distances = (
        f"{data.name}, uplink as in {words}: the simulation is {distance}."
        for data in figures
        for uplink, words in (("same", "the equations"), ("redrawn", "the analysis"))
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
    ours, full = (data.select(kind="simulation", uplink="same", label=label)[0] for label in ("PSO-Fed", "Online-Fed"))
    base, lower = data.base, bool(ours.y[-1] < full.y[-1])
    return (
        f"{'Yes' if lower else 'No'}. With {ours.x[-1]:g} of {base.num_clients} clients Byzantine, sharing "
        f"{base.num_shared} of {base.dimension} parameters (PSO-Fed) has a test MSE of "
        f"{fixed(float(ours.y_db[-1]), 1)} dB. Online-Fed shares all of them {base.dimension // base.num_shared} times "
        f"less often, on the same traffic, and comes to {fixed(float(full.y_db[-1]), 1)} dB: "
        f"{full.y[-1] / ours.y[-1]:.1f} times the error."
    )


def figure_table(data: FigureData, uplink: str, title: str) -> Table:
    """Return every point of a panel, with a column for every kind of series."""
    kinds = shown_kinds(data, [uplink])
    points: dict[tuple[int, float], dict[str, Measured]] = {}
    for series in data.panel(uplink):
        error = np.zeros(series.y.size) if series.standard_error is None else BAND * series.standard_error
        for x, y, half in zip(series.x.tolist(), series.y.tolist(), error.tolist(), strict=True):
            cell = Measured(y, y - half, y + half) if half else Measured(y)
            points.setdefault((series.curve, x), {})[kind_of(series)] = cell
    columns = [Column(KINDS[kind].title.partition(",")[0], Kind.LEVEL) for kind in kinds]
    rows = tuple(
        (data.curve_labels[curve], f"{x:g}", *(cells.get(kind) for kind in kinds))
        for (curve, x), cells in sorted(points.items())
    )
    return Table(f"{title}: {ordinate(data)}", (Column("curve"), Column(data.x_label), *columns), rows)


def describe_print(data: FigureData, uplink: str) -> str:
    """Say where the simulation is farthest from the printed points of a panel; nothing where none are."""
    shown = data.panel(uplink)
    printed = [one for one in shown if kind_of(one) == "published"] or [
        one for one in shown if kind_of(one) == "published-theory"
    ]
    distances = [
        (float(ours.y_db[np.isclose(ours.x, x)][0] - y), x, data.curve_labels[one.curve])
        for one in printed
        for ours in data.select(kind="simulation", uplink=uplink, curve=one.curve)
        for x, y in zip(one.x, one.y_db, strict=True)
        if np.isclose(ours.x, x).any()
    ]
    if not distances:
        return ""
    worst, place, curve = max(distances, key=lambda distance: abs(distance[0]))
    where = f"{curve}, {data.x_label} = {place:g}"
    return f"up to {fixed(abs(worst))} dB {'above' if worst > 0 else 'below'} the printed points ({where})"


def describe_misfit(data: FigureData, uplink: str) -> str:
    """Say how near each theory comes to the simulation, everywhere in a panel."""
    words = []
    for kind in ("exact-theory", "paper-theory"):
        distances = [
            float(np.max(np.abs(theory.y_db - series.y_db)))
            for theory in data.panel(uplink)
            for series in data.select(kind="simulation", uplink=uplink, label=theory.label)
            if theory.kind == kind
        ]
        if distances:
            words.append(f"{KINDS[kind].title} within {fixed(max(*distances, 0.01))} dB")
    return ", ".join(words)


def run_table(reproduction: Reproduction) -> Table:
    """Return how the figures were made: times, quality, machine and versions."""
    facts = {
        "wall time": f"simulation {reproduction.simulation_seconds:.1f} s, theory {reproduction.theory_seconds:.1f} s",
        "cells": f"{reproduction.computed_cells} simulated in this run, {reproduction.cells} in all",
        **({"changed": str(reproduction.changes)} if reproduction.changes else {}),
        "quality": "quick" if reproduction.quality.quick else "full",
        "seed": str(reproduction.quality.seed),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "psofed": __version__,
        **{name: version(name) for name in ("numpy", "scipy", "numba")},
        "printed points": published_table()["source"],
    }
    return Table("How it was made", (Column(""), Column("")), tuple(facts.items()))


def write_page(reproduction: Reproduction, claims: list[Claim], folder: Path) -> Path:
    """Write ``report.html`` next to the figures' files, whose pictures it holds; return its path."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters |= {"figure_title": lambda name: name.replace("fig", "Figure "), "typeset": typeset}
    figures = reproduction.figures
    resources = files("psofed.paper")
    pictures = {name: base64.b64encode((folder / f"{name}.svg").read_bytes()).decode() for name in figures}
    tables = {
        name: [_with_symbols(figure_table(data, uplink, PANELS[uplink]).to_html()) for uplink in UPLINKS]
        for name, data in figures.items()
    }
    text = environment.from_string(resources.joinpath("page.html").read_text("utf-8")).render(
        answer=answer(figures),
        claims=claims,
        counted=counted,
        describe_misfit=describe_misfit,
        describe_print=describe_print,
        figures=figures,
        FILES=("svg", "png", "json", "nc", "csv"),
        PANELS=PANELS,
        pictures=pictures,
        rough=ROUGH if reproduction.quality.quick else "",
        run=run_table(reproduction),
        style=Markup(resources.joinpath("page.css").read_text("utf-8")),
        tables=tables,
        VERDICTS=VERDICTS,
    )
    path = folder / "report.html"
    write_atomically(path, text.encode(), mode=0o666)
    return path


def typeset(text: str) -> Markup:
    r"""Return text as HTML, with subscripts, letters of quantities in italics and numbers that stay with their units.

    Examples
    --------
    >>> typeset("|S_B| = 5 & M = 1")
    Markup('|<i>S</i><sub>B</sub>|\xa0=\xa05 &amp; <i>M</i>\xa0=\xa01')
    """
    glued = re.sub(r" [=≤≥] (?=[\d+−-])|(?<=\d) (?:± \d|dB)", lambda match: match[0].replace(" ", "\u00a0"), text)
    return _with_symbols(html.escape(glued, quote=False))


def _with_symbols(text: str) -> Markup:
    """Set symbols such as S_B and M in HTML."""
    written = re.sub(r"\b(\w)_([^\W_])(?![a-z0-9_])", r"<i>\1</i><sub>\2</sub>", text)
    return Markup(re.sub(r"(?<![\w<&/])(M|K|D|μ)(?![\w>])", r"<i>\1</i>", written))
