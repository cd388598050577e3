"""How charts look: colours that colour-blind readers tell apart, markers and lines that survive grey print."""

from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError

# Okabe and Ito's palette without its yellow (too pale on paper); neighbours differ in grey too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")

# Ends of pictures' names, and metadata that would differ from run to run.
PICTURE_FORMATS: dict[str, dict[str, None] | None] = {
    ".png": None,
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}

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
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "svg.hashsalt": "psofed",
}


def check_picture_format(path: Path) -> None:
    """Refuse a picture's name whose ending is not one we can write, before any work is done."""
    if path.suffix.lower() not in PICTURE_FORMATS:
        raise InvalidValueError("picture", str(path), "a name ending in " + ", ".join(PICTURE_FORMATS))
