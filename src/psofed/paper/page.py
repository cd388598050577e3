"""The report: one HTML page that opens from disk, with everything inside."""

import base64
import html
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from psofed._version import __version__
from psofed.common.files import atomic_path
from psofed.paper.figure_plots import ORDINATES, PANEL_TITLES, describe_misfit
from psofed.paper.model import FigureData
from psofed.paper.published import published_table
from psofed.paper.reproduce import Reproduction
from psofed.paper.verdict import CONDITIONAL, FAILS, HOLDS, UNDECIDED, Claim, describe_case
from psofed.plots.style import COLOURS, MARKERS

_SIGNS = {HOLDS: "✓", CONDITIONAL: "◐", FAILS: "✗", UNDECIDED: "?"}
_CLASSES = {HOLDS: "holds", CONDITIONAL: "conditional", FAILS: "fails", UNDECIDED: "undecided"}


def write_page(reproduction: Reproduction, claims: list[Claim], seconds: float, folder: Path) -> Path:
    """Write ``report.html`` beside the figures' files, which must be there; return its path."""
    path = folder / "report.html"
    with atomic_path(path) as temporary:
        temporary.write_text(_page(reproduction, claims, seconds, folder), encoding="utf-8")
    return path


def describe_machine() -> dict[str, str]:
    """Return processor, cores, system and the versions that matter."""
    packages = ("numpy", "scipy", "numba", "xarray", "matplotlib")
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "psofed": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _page(reproduction: Reproduction, claims: list[Claim], seconds: float, folder: Path) -> str:
    figures = list(reproduction.figures.values())
    data = {
        "look": {"colours": COLOURS, "markers": MARKERS},
        "figures": [_chart_data(figure) for figure in figures],
    }
    # "</" would end the script element that holds the data.
    embedded = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("</", "<\\/")
    links = " ".join(f'<a href="#{figure.name}">{figure.name}</a>' for figure in figures)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>PSO-Fed: the paper's figures, reproduced</title>
<link rel="icon" href="data:,">
<style>{_resource("page.css")}</style>
</head>
<body>
<header><div>
<h1>PSO-Fed: the paper’s figures, reproduced</h1>
<p>Simulation with 95 % bands, the paper’s theory, the exact theory and the printed points. Left panels simulate
the paper’s equations, in which those who download also upload (uplink <i>same</i>); right panels the system that
its analysis describes, in which the uploading clients are drawn afresh (uplink <i>redrawn</i>). The exact theory
is solved for each; the paper’s theory makes no difference between them. The paper’s fleet (its drawn variances)
is unknown: between fleets levels differ by some tenths of a dB, slopes and order hardly.</p>
<nav><a href="#claims">claims</a> {links} <a href="#run">how it was made</a></nav>
</div></header>
<main>
<div id="failure" role="alert"></div>
{_claims_table(claims, reproduction)}
<h2 id="figures">Figures</h2>
{"".join(_figure_section(figure, folder) for figure in figures)}
{_run_section(reproduction, seconds)}
</main>
<script type="application/json" id="data">{embedded}</script>
<script>{_resource("page.js")}</script>
</body>
</html>
"""


def _chart_data(figure: FigureData) -> dict[str, Any]:
    return {
        **figure.to_json(),
        "panel_titles": {uplink: PANEL_TITLES[uplink] for uplink in figure.panels},
        "misfits": {uplink: describe_misfit(figure, uplink) for uplink in figure.panels},
        "ordinates": ORDINATES,
    }


def _claims_table(claims: list[Claim], reproduction: Reproduction) -> str:
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in _SIGNS}
    words = {
        HOLDS: "hold",
        CONDITIONAL: "hold only under a condition",
        FAILS: "do not hold",
        UNDECIDED: "are open",
    }
    summary = ", ".join(f"{count} {words[verdict]}" for verdict, count in counts.items() if count)
    rough = (
        ""
        if not reproduction.quality.quick
        else " This was a quick run: differences near the noise are rough."
    )
    rows = "".join(_claim_row(claim) for claim in claims)
    return f"""<h2 id="claims">Claims of the paper</h2>
<p class="muted">Verdicts are computed from the numbers behind the figures: {summary}. Comparisons are paired (equal
seeds give equal draws); ± is one standard error.{rough}</p>
<table class="claims"><thead><tr><th>claim</th><th>verdict</th><th>numbers</th></tr></thead>
<tbody>{rows}</tbody></table>
"""


def _claim_row(claim: Claim) -> str:
    links = ", ".join(f'<a href="#{name}">{name}</a>' for name in claim.figures)
    evidence = "".join(f"<li>{html.escape(line)}</li>" for line in claim.evidence)
    cases = "".join(
        f"<li>{_SIGNS[{True: HOLDS, False: FAILS, None: UNDECIDED}[check.passed]]} "
        f"{html.escape(describe_case(check.case))}: {html.escape(check.finding)}</li>"
        for check in claim.checks
    )
    look = f'class="verdict {_CLASSES[claim.verdict]}" data-sign="{_SIGNS[claim.verdict]}"'
    verdict = f"<span {look}>{claim.verdict}</span>"
    condition = f"<div>{html.escape(claim.condition)}</div>" if claim.condition else ""
    return f"""<tr><td>{html.escape(claim.statement)}<div class="muted">{html.escape(claim.source)}; {links}</div></td>
<td>{verdict}{condition}</td>
<td><div class="muted">{html.escape(claim.criterion)}</div><ul class="evidence">{evidence}</ul>
<details><summary>all {len(claim.checks)} cases</summary><ul class="evidence">{cases}</ul></details></td></tr>
"""


def _figure_section(figure: FigureData, folder: Path) -> str:
    picture = base64.b64encode((folder / f"{figure.name}.svg").read_bytes()).decode("ascii")
    varied = "\n".join(
        f"# {field} takes the values {json.dumps(values, ensure_ascii=False)}"
        for field, values in figure.varied.items()
    )
    files_ = ", ".join(
        f'<a href="{figure.name}.{kind}">{kind}</a>' for kind in ("svg", "png", "json", "nc", "csv")
    )
    unsteady = (
        f"<p class='verdict fails' data-sign='!'>Not yet in steady state: {html.escape('; '.join(figure.unsteady))}</p>"
        if figure.unsteady
        else ""
    )
    return f"""<section class="figure" id="{figure.name}">
<h3>{figure.name}: {html.escape(figure.title)}</h3>
<p class="muted">{html.escape(figure.caption)} {figure.trials} trials; standard errors at most
{figure.worst_standard_error_db:.3f} dB. Files: {files_}.</p>{unsteady}
<div id="{figure.name}-chart"></div>
<details><summary>static picture</summary>
<img alt="{html.escape(figure.title)}" src="data:image/svg+xml;base64,{picture}"></details>
<details><summary>scenario</summary><pre>{html.escape(figure.base.to_toml())}
{html.escape(varied)}</pre></details>
</section>
"""


def _run_section(reproduction: Reproduction, seconds: float) -> str:
    facts = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "wall time": f"{seconds:.1f} s (simulation with theory beside it {reproduction.simulation_seconds:.1f} s, "
        f"rest of the theory {reproduction.theory_seconds:.1f} s)",
        "cells": f"{reproduction.computed_cells} simulated in this run, {reproduction.cells} in all",
        "quality": "quick" if reproduction.quality.quick else "full",
        "seed": str(reproduction.quality.seed),
        **describe_machine(),
        "printed points": published_table()["source"],
    }
    rows = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items()
    )
    return f'<h2 id="run">How it was made</h2><dl class="facts">{rows}</dl><p class="muted">&nbsp;</p>'


def _resource(name: str) -> str:
    return files("psofed.paper").joinpath(name).read_text("utf-8")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
