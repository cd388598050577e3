"""A figure on the page: its legend and controls, the places of its charts, and the table behind them."""

import html
import json
import re
from urllib.parse import quote

import numpy as np

from psofed.paper.charts import (
    HEADLINE,
    HEADLINE_KINDS,
    KINDS,
    ORDINATES,
    chart_name,
    describe_misfit,
    kind_of,
    metrics_of,
    shown_kinds,
)
from psofed.paper.look import look_of
from psofed.paper.model import FigureData, FigureSeries
from psofed.paper.page_claims import figure_title
from psofed.paper.typeset import typeset
from psofed.render.numbers import counted, fixed
from psofed.render.pages import GREY

PANELS = {
    "same": ("The equations as written", "those who download also upload (uplink <i>same</i>)"),
    "redrawn": (
        "The system of the analysis",
        "the uploading clients are drawn independently (uplink <i>redrawn</i>)",
    ),
}
FILES = ("svg", "png", "json", "nc", "csv")


def headline_figure(data: FigureData, uplink: str, place: str, picture: str) -> str:
    """Return the opening picture with its legend; `place` is the chart's element, `picture` an SVG for print."""
    kinds = [kind for kind in shown_kinds(data, [uplink]) if kind in HEADLINE_KINDS]
    return f"""<div class="figure headline" data-figure="{HEADLINE}">
{_static(picture, data.title)}
{_chart(data, uplink, HEADLINE, place, PANELS[uplink][1])}
<p class="muted key">Filled marks: simulation. Lines without marks: the exact theory. Hollow marks: as printed
in the paper. <span class="screen">Click a name to hide it.</span></p>
{_legend(data, uplink)}
{_controls(HEADLINE, kinds, {})}
</div>
"""


def figure_section(data: FigureData, places: dict[str, str], picture: str) -> str:
    """Return all of a figure; `places` holds the elements of its charts, by name, `picture` an SVG for print."""
    panels = "".join(
        f"""<div class="panel"><h4>{PANELS[uplink][0]}</h4>
<p class="muted">{PANELS[uplink][1]}; {typeset(describe_misfit(data, uplink))}</p>
{_chart(data, uplink, chart_name(data, uplink), places[chart_name(data, uplink)], PANELS[uplink][1])}</div>"""
        for uplink in data.panels
    )
    unsteady = (
        f'<p class="card fails">Not yet in a steady state: {typeset("; ".join(data.unsteady))}</p>'
        if data.unsteady
        else ""
    )
    links = ", ".join(f'<a href="{data.name}.{kind}">{kind}</a>' for kind in FILES)
    return f"""<section class="figure" id="{data.name}" data-figure="{data.name}" aria-labelledby="{data.name}-title">
<h3 id="{data.name}-title"><span class="number">{figure_title(data.name)}</span> {typeset(data.title)}
<a class="permalink screen" href="#{data.name}" aria-label="Link to {figure_title(data.name).lower()}">#</a></h3>
<p class="caption">{typeset(data.caption)}</p>{unsteady}
{_legend(data, None)}
{_static(picture, data.title)}
<div class="panels">{panels}</div>
{_controls(data.name, shown_kinds(data, data.panels), metrics_of(data))}
<details><summary>The numbers as a table</summary>{"".join(_table(data, uplink) for uplink in data.panels)}</details>
<details><summary>The scenario</summary>{_scenario(data)}</details>
<p class="muted">{counted(data.trials, "trial")} per point; standard errors at most
{data.worst_standard_error_db:.3f} dB. Files: {links}.</p>
</section>
"""


def _static(picture: str, title: str) -> str:
    """Return a picture that is printed, and copied as PNG."""
    source = quote(_compact(picture), safe=" =:/;,.-'()<>|*+!?&@$[]{}")
    return f'<img class="print" alt="{html.escape(title, quote=True)}" src="data:image/svg+xml,{source}">'


def _compact(picture: str) -> str:
    """Return an SVG in half the bytes: a hundredth of a point is more than anyone sees."""
    bare = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>", "", picture, flags=re.S)
    bare = " ".join(bare.split()).replace('"', "'")  # other quotes and line ends would have to be escaped
    return re.sub(r" d='[^']*'", lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), bare)


def _chart(data: FigureData, uplink: str, name: str, place: str, where: str) -> str:
    ordinate = (
        f"{ORDINATES[data.metric]} (dB), lower is better" if data.metric != "term" else "term of the MSE (dB)"
    )
    curves = ", ".join(data.curve_labels[c] for c in data.curve_labels if c in _simulated(data, uplink))
    alt = (
        f"{data.title}. {ordinate} over {data.x_label}; {where}. Curves: {curves}. Arrow keys read the values"
    )
    alt = html.escape(alt.replace("<i>", "").replace("</i>", ""), quote=True)
    table = "." if name == HEADLINE else "; the table below has them all."
    return f"""<div class="chart" data-chart="{name}" data-x="{html.escape(typeset(data.x_label), quote=True)}">
<p class="axis y" data-ordinate>{typeset(ordinate)}</p>
<div class="place" role="img" tabindex="0" aria-label="{alt}{table}">{place}</div>
<p class="axis x">{typeset(data.x_label)}</p>
<div class="readout" role="status" hidden></div>
</div>"""


def _simulated(data: FigureData, uplink: str | None) -> list[int]:
    return [
        series.curve
        for series in data.series
        if series.kind == "simulation" and uplink in (None, series.uplink)
    ]


def _legend(data: FigureData, uplink: str | None) -> str:
    """Return a button for every curve; pressed ones are shown."""
    shown = _simulated(data, uplink)
    buttons = "".join(
        f'<button type="button" class="chip" aria-pressed="true" data-curve="{curve}">'
        f"{_swatch(label, curve)}<span>{typeset(label)}</span></button>"
        for curve, label in data.curve_labels.items()
        if curve in shown
    )
    return f'<div class="legend" role="group" aria-label="Curves: click to hide or show">{buttons}</div>'


def _controls(name: str, kinds: list[str], metrics: dict[str, str]) -> str:
    layers = "".join(
        f'<button type="button" class="chip layer" aria-pressed="true" data-kind="{kind}">'
        f"{_mark(KINDS[kind].layer)}<span>{KINDS[kind].title}</span></button>"
        for kind in kinds
    )
    choices = "".join(
        f'<option value="{metric}">{html.escape(title)}</option>' for metric, title in metrics.items()
    )
    ordinates = html.escape(json.dumps({metric: ORDINATES[metric] for metric in metrics}), quote=True)
    metric = (
        f'<label class="metric">Show <select data-metric data-ordinates="{ordinates}">{choices}</select></label>'
        if metrics
        else ""
    )
    tools = "".join(
        f'<button type="button" class="tool" data-tool="{tool}"{state}>{title}</button>'
        for tool, title, state in (
            ("box", "Drag zooms", ' aria-pressed="false"'),
            ("pan", "Drag pans", ' aria-pressed="false"'),
            ("in", '<span aria-hidden="true">+</span><span class="unseen">Zoom in</span>', ""),
            ("out", '<span aria-hidden="true">−</span><span class="unseen">Zoom out</span>', ""),
            ("reset", "Whole picture", ""),
        )
    )
    tools += '<button type="button" class="tool" data-copy>Copy as PNG</button>'
    tools += '<span role="status" class="muted"></span>'
    opened = "" if name == HEADLINE else " open"
    return f"""<details class="controls"{opened}><summary>Layers and zoom</summary>
<div class="legend layers" role="group" aria-label="Layers: click to hide or show">{layers}</div>
<div class="tools" role="group" aria-label="Zoom of {figure_title(name).lower()}">{metric}{tools}</div></details>"""


def _table(data: FigureData, uplink: str) -> str:
    """Return one table per panel: a row for every point of every curve, a column for every kind."""
    kinds = shown_kinds(data, [uplink])
    series = data.panel(uplink)
    body = []
    for curve in sorted({one.curve for one in series}):
        of_kind = {kind_of(one): one for one in series if one.curve == curve}
        label = typeset(data.curve_labels[curve])
        body.append(f'<tr><th colspan="{len(kinds) + 1}" scope="rowgroup" class="curve">{label}</th></tr>')
        for x in sorted({float(x) for one in of_kind.values() for x in one.x}):
            cells = []
            for kind in kinds:
                one = of_kind.get(kind)
                places = [] if one is None else [i for i, value in enumerate(one.x) if value == x]
                if one is None or not places:
                    cells.append("<td>–</td>")
                    continue
                cells.append(f"<td>{_level(one, places[0])}</td>")
            body.append(f'<tr><th scope="row">{x:g}</th>{"".join(cells)}</tr>')
    titles = [KINDS[kind].title.removesuffix(", with its 95 % interval") for kind in kinds]
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    return f"""<div class="scroll" tabindex="0" role="region" aria-label="Table: {PANELS[uplink][0].lower()}">
<table><caption>{PANELS[uplink][0]}: {typeset(ORDINATES[data.metric])} in dB; ± is one standard error</caption>
<thead><tr><th scope="col">{typeset(data.x_label)}</th>{head}</tr></thead>
<tbody>{"".join(body)}</tbody></table></div>"""


def _level(series: FigureSeries, place: int) -> str:
    if not np.isfinite(series.y_db[place]):
        return "diverged"
    error = series.standard_error_db
    spread = "" if error is None else f" ± {error[place]:.2f}"
    return f"{fixed(float(series.y_db[place]))}{spread}"


def _scenario(data: FigureData) -> str:
    varied = "\n".join(
        f"# {field} takes the values {json.dumps(values, ensure_ascii=False)}"
        for field, values in data.varied.items()
    )
    return f"<pre>{html.escape(data.base.to_toml())}\n{html.escape(varied)}</pre>"


def _swatch(label: str, curve: int) -> str:
    look = look_of(label, curve)
    shape = _SHAPES.get(look.marker, _SHAPES["o"])
    return f'<svg viewBox="0 0 26 14" aria-hidden="true" style="--hue:{look.colour}">{_LINE}{shape}</svg>'


def _mark(style: str) -> str:
    return f'<svg viewBox="0 0 26 14" aria-hidden="true" style="--hue:{GREY}">{_MARKS[style]}</svg>'


_LINE = '<path d="M1 7H25" stroke="currentColor" stroke-width="1.6"/>'
_SHAPES = {
    "o": '<circle cx="13" cy="7" r="4" fill="currentColor"/>',
    "s": '<path d="M9 3h8v8H9z" fill="currentColor"/>',
    "^": '<path d="M13 2.5l4.5 8h-9z" fill="currentColor"/>',
    "v": '<path d="M13 11.5l4.5-8h-9z" fill="currentColor"/>',
    "D": '<path d="M13 2l4 5-4 5-4-5z" fill="currentColor"/>',
    "P": '<path d="M11.5 2.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z" fill="currentColor"/>',
    "*": '<path d="M13 1.5l1.5 3.7 4 .3-3 2.6.9 3.9-3.4-2.1-3.4 2.1.9-3.9-3-2.6 4-.3z" fill="currentColor"/>',
}
_MARKS = {
    "points": _LINE + _SHAPES["o"],
    "halo": '<path d="M3 7H23" stroke="currentColor" stroke-width="8" stroke-linecap="round" opacity=".45"/>',
    "dashes": '<path d="M1 7H25" stroke="currentColor" stroke-width="1.8" stroke-dasharray="6 3.5"/>',
    "dots": '<path d="M1 7H25" stroke="currentColor" stroke-width="2" stroke-dasharray="2 3"/>',
    "rings": '<circle cx="13" cy="7" r="5.5" fill="none" stroke="currentColor" stroke-width="1.2"/>',
    "crosses": '<path d="M9 3l8 8m0-8l-8 8" stroke="currentColor" stroke-width="1.4"/>',
}
