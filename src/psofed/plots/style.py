"""How plots look: colours that colour-blind readers tell apart, markers and lines that survive grey print."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette without its yellow (too pale on paper); neighbours differ in grey too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")

_SETTINGS: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.5,
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


@contextmanager
def plot_style() -> Iterator[None]:
    """Apply the style to everything plotted inside the block."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        yield


def make_canvas(width: float, height: float, *, laid_out: bool = True) -> "Figure":
    """Return an empty figure that no window manager knows of (safe in threads, nothing to close).

    Parameters
    ----------
    width, height : float
        In inches.
    laid_out : bool
        Find room for titles and legends automatically, which takes longer than the drawing.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained" if laid_out else None)
    FigureCanvasAgg(figure)
    return figure
