"""The report: one HTML page that opens from disk, with everything inside.

It begins with the answer: a sentence, a picture, how many of the paper's claims hold, and three findings. Then come
the claims as cards and the figures, each with the table behind it. The charts are Bokeh's; ``controls.js`` connects
the page's own buttons to them.
"""

import html
from importlib.resources import files
from pathlib import Path

from psofed.common.files import atomic_path
from psofed.paper.charts import HEADLINE, headline_chart, make_headline, make_panels, save_pictures
from psofed.paper.claims import NOT_IN_PAPER
from psofed.paper.findings import answer, find_findings
from psofed.paper.model import FigureData
from psofed.paper.page_claims import claim_sections, figure_links, figure_title, verdict_tiles
from psofed.paper.page_figures import figure_section, headline_figure
from psofed.paper.report import ROUGH, run_table
from psofed.paper.reproduce import Reproduction
from psofed.paper.typeset import typeset
from psofed.paper.verdict import Claim
from psofed.render import Table
from psofed.render.figures import draw_chart, figure_to_svg
from psofed.render.numbers import counted
from psofed.render.pages import bokeh_script, embed

# Nothing may be fetched, whatever a script should try.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def write_page(reproduction: Reproduction, claims: list[Claim], seconds: float, folder: Path) -> Path:
    """Write ``report.html`` beside the figures' files, to which it links; return its path.

    For print it holds the figures' SVG files, which are drawn if they are not there.
    """
    path = folder / "report.html"
    text = _page(
        reproduction,
        claims,
        seconds,
        {name: _picture(data, folder) for name, data in reproduction.figures.items()},
    )
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _picture(data: FigureData, folder: Path) -> str:
    path = folder / f"{data.name}.svg"
    if not path.exists():
        save_pictures(data, folder)
    return path.read_text(encoding="utf-8")


def _page(reproduction: Reproduction, claims: list[Claim], seconds: float, pictures: dict[str, str]) -> str:
    figures = reproduction.figures
    first = figures.get("fig1", next(iter(figures.values())))
    uplink = first.panels[0]
    charts = {HEADLINE: make_headline(first, uplink)}
    for figure in figures.values():
        charts |= make_panels(figure)
    script, places = embed(charts)
    sections = "".join(figure_section(figure, places, pictures[name]) for name, figure in figures.items())
    opening = headline_figure(
        first, uplink, places[HEADLINE], figure_to_svg(draw_chart(headline_chart(first, uplink)))
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="color-scheme" content="light dark">
<title>PSO-Fed: the paper’s figures, reproduced</title>
<link rel="icon" href="data:,">
<style>{_resource("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
{_bar(list(figures))}
<main id="main">
{_opening(reproduction, claims, opening)}
{_claims(claims)}
<h2 id="figures">Figures</h2>
<p class="lead">Points are simulations, drawn with their 95 % bands, which are often too narrow to see. The pale line
beneath is the exact theory, the dashed one the paper’s theory; rings are what the paper printed. The variances
that the paper drew for its clients are unknown. From one draw to another, levels differ by a few tenths of a dB; slopes
and order hardly change.</p>
<noscript><p class="card fails">The charts need JavaScript. The tables below them, and the files beside this page, do
not.</p></noscript>
{sections}
{_run_section(run_table(reproduction, seconds))}
</main>
{bokeh_script()}
{script}
<script>{_resource("controls.js")}</script>
</body>
</html>
"""


def _bar(names: list[str]) -> str:
    numbers = "".join(
        f'<a href="#{name}" aria-label="{figure_title(name)}">{name.removeprefix("fig")}</a>'
        for name in names
    )
    return f"""<header class="bar"><div>
<a class="brand" href="#answer">PSO-Fed, reproduced</a>
<details class="menu"><summary>Contents</summary>
<nav aria-label="Contents"><a href="#answer">Answer</a><a href="#claims">Claims</a>
<span class="figures"><a href="#figures">Figures</a>{numbers}</span><a href="#run">How it was made</a></nav></details>
<button type="button" id="theme" aria-label="Dark colours" aria-pressed="false"><span aria-hidden="true">◐</span><span
class="word" aria-hidden="true"> Dark</span></button>
</div></header>"""


def _opening(reproduction: Reproduction, claims: list[Claim], picture: str) -> str:
    findings = "".join(
        f'<li class="finding"><h3>{typeset(finding.title)}</h3><p>{typeset(finding.text)}</p>'
        f'<p class="muted">See {figure_links(finding.figures)}.</p></li>'
        for finding in find_findings(reproduction.figures)
    )
    rough = f'<p class="muted rough">{ROUGH}</p>' if reproduction.quality.quick else ""
    return f"""<section id="answer">
<h1>Does sharing less keep a federation accurate when clients are Byzantine?</h1>
<p class="answer">{typeset(answer(reproduction.figures))}</p>{rough}
<div class="opening">{picture}
<div class="verdicts"><h2>{counted(len(claims), "claim")} checked</h2>
{verdict_tiles(claims)}</div></div>
<h2>What to remember</h2>
<ol class="findings">{findings}</ol>
</section>
"""


def _claims(claims: list[Claim]) -> str:
    ours = sum(claim.source == NOT_IN_PAPER for claim in claims)
    note = f" {counted(ours, 'claim is', 'claims are')} ours and not the paper’s." if ours else ""
    return f"""<h2 id="claims">The paper’s claims</h2>
<p class="lead">Every verdict and every condition is computed from the numbers behind the figures. Comparisons are
paired (equal seeds give equal draws); ± is one standard error.{note}</p>
{claim_sections(claims)}
"""


def _run_section(table: Table) -> str:
    rows = "".join(
        f"<dt>{html.escape(str(name))}</dt><dd>{html.escape(str(value))}</dd>" for name, value in table.rows
    )
    return f'<h2 id="run">{table.title}</h2><dl class="facts">{rows}</dl>'


def _resource(name: str) -> str:
    return files("psofed.paper").joinpath(name).read_text("utf-8")
