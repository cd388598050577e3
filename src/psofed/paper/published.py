"""The points printed in the paper, as numbers."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from psofed.paper.model import FigureSeries


@cache
def published_table() -> dict[str, Any]:
    """Return what stands in ``published.json``: the curves of each figure in dB, and where they come from."""
    table: dict[str, Any] = json.loads(files("psofed.paper").joinpath("published.json").read_text("utf-8"))
    return table


def published_series(figure: str, metric: str, curve_of: dict[Any, int], by: str) -> list[FigureSeries]:
    """Return the printed curves of a figure.

    Parameters
    ----------
    figure, metric : str
        Which figure, and what its ordinate is taken to be.
    curve_of : dict
        Number of the curve, by the value of the field `by` of a printed curve.
    by : str
        ``"curve"`` or ``"num_byzantine"``.
    """
    found = []
    for printed in published_table().get(figure, []):
        name = printed["curve"] if by == "curve" else f"|S_B| = {printed[by]}, printed {printed['curve']}"
        found.append(
            FigureSeries(
                label=name,
                kind="published",
                uplink=None,
                x=np.array(printed["x"], dtype=float),
                y=10 ** (np.array(printed["y_db"]) / 10),
                metric=metric,
                curve=curve_of[printed[by]],
            )
        )
    return found
