"""The report: one HTML page that opens from disk, with everything inside.

It begins with the answer: a sentence, a picture, and how many of the paper's claims hold. Then come the claims as
cards and the figures, each with the table behind it. ``page.html`` and ``parts.html`` are its templates.
The charts are Bokeh's; ``controls.js`` connects the page's own buttons to them.
"""

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from psofed.common.files import write_atomically
from psofed.paper import charts
from psofed.paper.claims import HOLDS, PARTLY, Claim
from psofed.paper.look import look_of
from psofed.paper.model import FigureData, FigureSeries, Reproduction
from psofed.paper.report import ROUGH, answer, run_table
from psofed.paper.typeset import typeset
from psofed.render.figures import draw_chart, figure_to_svg
from psofed.render.numbers import counted, fixed
from psofed.render.pages import GREY, bokeh_script, embed

# Of every verdict: its sign, its class in the style sheet, and what is said of one claim and of several.
VERDICTS = {
    HOLDS: ("✓", "holds", "holds", "hold"),
    PARTLY: ("◐", "partly", "holds in part", "hold in part"),
}
# Of every panel: its title, and the system that it shows.
PANELS = {
    "same": ("The equations as written", "those who download also upload"),
    "redrawn": ("The system of the analysis", "the uploading clients are drawn independently"),
}


def write_page(reproduction: Reproduction, claims: list[Claim], folder: Path) -> Path:
    """Write ``report.html`` beside the figures' files, to which it links; return its path.

    For print it holds the figures' SVG files.
    """
    figures = reproduction.figures
    first = figures.get("fig1", next(iter(figures.values())))
    models = {charts.HEADLINE: charts.make_headline(first, first.panels[0])}
    for figure in figures.values():
        models |= charts.make_panels(figure)
    script, places = embed(models)
    text = templates().get_template("page.html").render(
        answer=answer(figures),
        bokeh=Markup(bokeh_script()),
        claims=claims,
        figures=figures,
        first=first,
        headline_picture=_picture(figure_to_svg(draw_chart(charts.headline_chart(first, first.panels[0])))),
        pictures={name: _picture((folder / f"{name}.svg").read_text(encoding="utf-8")) for name in figures},
        places=places,
        rough=ROUGH if reproduction.quality.quick else "",
        run=run_table(reproduction),
        script=Markup(script),
    )  # fmt: skip
    path = folder / "report.html"
    write_atomically(path, text.encode(), mode=0o666)
    return path


@cache
def templates() -> Environment:
    """Return the page's templates, with everything they call; what they insert is escaped unless it is HTML already."""
    made = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "figure_title": lambda name: name.replace("fig", "Figure "),
        "json": lambda value: json.dumps(value, ensure_ascii=False),
        "typeset": lambda text: Markup(typeset(text)),
    }
    names = ("HEADLINE", "HEADLINE_KINDS", "KINDS", "ORDINATES", "chart_name", "describe_misfit", "describe_print",
             "metrics_of", "ordinate", "shown_kinds")  # fmt: skip
    made.globals |= {name: getattr(charts, name) for name in names} | {
        "FILES": ("svg", "png", "json", "nc", "csv"),
        "GREY": GREY,
        "PANELS": PANELS,
        "VERDICTS": VERDICTS,
        "counted": counted,
        "levels": levels,
        "look_of": look_of,
        "resource": lambda name: Markup(_resource(name)),
    }
    return made


def levels(data: FigureData, uplink: str) -> dict[int, dict[float, dict[str, str]]]:
    """Return the points of a panel as its table shows them, by curve, place and kind."""
    found: dict[int, dict[float, dict[str, str]]] = {}
    for series in data.panel(uplink):
        for place, x in enumerate(series.x.tolist()):
            found.setdefault(series.curve, {}).setdefault(x, {})[charts.kind_of(series)] = _level(
                series, place
            )
    return {curve: dict(sorted(points.items())) for curve, points in sorted(found.items())}


def _level(series: FigureSeries, place: int) -> str:
    if not np.isfinite(series.y_db[place]):
        return "diverged"
    error = series.standard_error_db
    spread = "" if error is None else f" ± {error[place]:.2f}"
    return f"{fixed(float(series.y_db[place]))}{spread}"


def _picture(svg: str) -> str:
    """Return an SVG for an address, in half the bytes: a hundredth of a point is more than anyone sees."""
    bare = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>", "", svg, flags=re.S)
    bare = " ".join(bare.split()).replace('"', "'")  # other quotes and line ends would have to be escaped
    bare = re.sub(r" d='[^']*'", lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), bare)
    return quote(bare, safe=" =:/;,.-'()<>|*+!?&@$[]{}")


def _resource(name: str) -> Any:
    return files("psofed.paper").joinpath(name).read_text("utf-8")
