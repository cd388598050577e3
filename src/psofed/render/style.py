"""How charts look: colours that colour-blind readers tell apart, markers and lines that survive grey print."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError

if TYPE_CHECKING:
    from psofed.render.charts import AnyChart

# Okabe and Ito's palette without its yellow (too pale on paper); neighbours differ in grey too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")

# Widths of a journal's column and page (IEEE's), in inches; pictures of these sizes keep their fonts' sizes in print.
COLUMN_WIDTH, PAGE_WIDTH = 3.5, 7.16

# Ends of pictures' names, and metadata that would differ from run to run.
PICTURE_FORMATS: dict[str, dict[str, None] | None] = {
    ".png": None,
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}

DOTS_PER_INCH = 200  # twice what screens show at the size of a page

MATPLOTLIB: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.5,
    "axes.unicode_minus": True,
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.5,
    "savefig.dpi": DOTS_PER_INCH,
}

# Sizes in figures of a journal.
PRINT: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 8),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    "legend.columnspacing": 1.2,
}

# Files have TrueType fonts, which journals ask for, and the same bytes for the same picture.
FONTS: dict[Any, Any] = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "psofed"}


def check_width(width: str | float) -> float:
    """Return a width in inches: ``"column"`` or ``"page"`` of a journal, or a number."""
    named = {"column": COLUMN_WIDTH, "page": PAGE_WIDTH}
    if isinstance(width, str):
        if width in named:
            return named[width]
        with contextlib.suppress(ValueError):
            width = float(width)
    if isinstance(width, bool) or not isinstance(width, int | float) or not 1.0 <= width <= 50.0:
        raise InvalidValueError("width", width, '"column", "page", or 1 to 50 inches')
    return float(width)


def check_picture_format(path: Path, name: str = "picture") -> None:
    """Refuse a picture's name whose ending is not one we can write, before any work is done."""
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise InvalidValueError(name, str(path), "a name ending in " + ", ".join(PICTURE_FORMATS))


def save_picture(
    chart: "AnyChart", path: Path, width: str | float | None = None, suffixes: Sequence[str] = (".svg", ".png")
) -> None:
    """Write a chart in several formats, each whole or not at all."""
    from psofed.render.figures import draw_chart, save_figure

    figure = draw_chart(chart, width=width)
    for suffix in suffixes:
        save_figure(figure, path.with_suffix(suffix))
        figure.set_layout_engine("none")  # everything has its place by now
