"""The report: one HTML page that opens from disk, with everything inside.

It begins with the answer, and how many of the paper's claims hold. Then come the claims as cards and the figures, each
with the table behind it. ``page.html`` is its template.
"""

import base64
import html
import re
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from psofed.common.files import write_atomically
from psofed.paper import report
from psofed.paper.claims import HOLDS, PARTLY, Claim
from psofed.paper.model import Reproduction
from psofed.render.markup import table_to_html
from psofed.render.numbers import counted
from psofed.scenario import UPLINKS

# Of every verdict: its sign, its class in the style sheet, and what is said of one claim and of several.
VERDICTS = {HOLDS: ("✓", "holds", "holds", "hold"), PARTLY: ("◐", "partly", "holds in part", "hold in part")}
# What every panel shows.
PANELS = {
    "same": "The equations as written",
    "redrawn": "The system of the analysis, in which the uploading clients are drawn independently",
}


def write_page(reproduction: Reproduction, claims: list[Claim], folder: Path) -> Path:
    """Write ``report.html`` next to the figures' files, whose pictures it holds; return its path."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters |= {"figure_title": lambda name: name.replace("fig", "Figure "), "typeset": typeset}
    figures = reproduction.figures
    resources = files("psofed.paper")
    pictures = {name: base64.b64encode((folder / f"{name}.svg").read_bytes()).decode() for name in figures}
    tables = {
        name: [_with_symbols(table_to_html(report.figure_table(data, uplink, PANELS[uplink]))) for uplink in UPLINKS]
        for name, data in figures.items()
    }
    text = environment.from_string(resources.joinpath("page.html").read_text("utf-8")).render(
        answer=report.answer(figures),
        claims=claims,
        counted=counted,
        describe_misfit=report.describe_misfit,
        describe_print=report.describe_print,
        figures=figures,
        FILES=("svg", "png", "json", "nc", "csv"),
        PANELS=PANELS,
        pictures=pictures,
        rough=report.ROUGH if reproduction.quality.quick else "",
        run=report.run_table(reproduction),
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
