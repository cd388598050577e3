"""The nine figures of the paper: one small file each, found by listing this folder.

A figure's file holds its scenario and its axes (:data:`FIGURE`); the machinery is shared. Beside them:
`model` (content of a figure), `curves` (figures that are one sweep with theory beside it), `published`
(the printed points), `predictions` (theory, each point once), `reproduce` (runs and saves them), `claims`.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from psofed.common.validation import check_choice

if TYPE_CHECKING:
    from psofed.paper.curves import FigurePlan

__all__ = ["figure_names", "load_figure"]


def figure_names() -> tuple[str, ...]:
    """Names of all figures, in the order of the paper's captions.

    Examples
    --------
    >>> figure_names()[0], len(figure_names())
    ('fig1', 9)
    """
    found = (re.fullmatch(r"fig(\d+)\.py", path.name) for path in Path(__file__).parent.iterdir())
    return tuple(f"fig{number}" for number in sorted(int(match[1]) for match in found if match))


def load_figure(name: str) -> "FigurePlan":
    """Return the figure called `name`."""
    check_choice("figure", name, figure_names())
    plan: FigurePlan = import_module(f"psofed.paper.figures.{name}").FIGURE
    return plan
