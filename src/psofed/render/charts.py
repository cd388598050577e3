"""Charts as values: what is drawn, not how. Matplotlib (`figures`) draws them.

A `Chart` holds series over a number or a name, with bands or bars for intervals. A `RowChart` has a named row for each
thing that is compared. `Panels` are charts side by side.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray

# Points of a learning curve per tenfold of iterations.
BINS_PER_DECADE = 30


@dataclass(frozen=True, eq=False)
class Series:
    """One curve, or one set of points.

    Attributes
    ----------
    label : str
        In the legend; empty for none.
    x, y : array (n,)
        What is not finite leaves a gap.
    low, high : array (n,), optional
        Ends of intervals: a band along a line, bars at points without one.
    line : str
        ``"-"``, ``"--"``, ``"-."``, ``":"`` or nothing.
    marker : str
        Matplotlib's letter, or nothing.
    colour : int, float or str
        A place in the palette, a shade from 0 to 1 for things in order, or a colour.
    size : float
        Of the marker.
    width : float
        Of the line.
    hollow : bool
        Whether markers are rings.
    is_median : bool array (n,), optional
        Points drawn hollow, because tails are heavy.
    is_lost : bool array (n,), optional
        Points where trials diverged, marked at the upper edge.
    """

    label: str
    x: FloatArray
    y: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    line: str = "-"
    marker: str = ""
    colour: int | float | str = 0
    size: float = 5.5
    width: float = 1.6
    hollow: bool = False
    is_median: NDArray[np.bool_] | None = None
    is_lost: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Scale:
    """An axis.

    Attributes
    ----------
    label : str
    log : bool
    limits : (float, float), optional
        Points above the upper limit are marked at the edge; in a row chart those beyond both, with their numbers.
    ticks : tuple of (float, str), optional
        Places with their names.
    whole : bool
        Whether ticks are whole numbers.
    """

    label: str = ""
    log: bool = False
    limits: tuple[float, float] | None = None
    ticks: tuple[tuple[float, str], ...] | None = None
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Chart:
    """Series over a common axis.

    Attributes
    ----------
    title : str
    x, y : Scale
    series : tuple of Series
    size : (float, float)
        Width and height in inches.
    """

    title: str
    x: Scale
    y: Scale
    series: tuple[Series, ...]
    size: tuple[float, float] = (7.2, 4.2)


@dataclass(frozen=True, eq=False)
class RowChart:
    """A value with its interval for each of some named rows, from top to bottom, on both sides of zero.

    Attributes
    ----------
    title : str
    x : Scale
    names : tuple of str
    values, low, high : array (rows,)
        Values and the ends of their intervals; infinite where it diverged, NaN where it is unknown.
    starred : frozenset of int
        Rows marked by a star.
    size : (float, float)
    """

    title: str
    x: Scale
    names: tuple[str, ...]
    values: FloatArray
    low: FloatArray
    high: FloatArray
    starred: frozenset[int] = frozenset()
    size: tuple[float, float] = (6.0, 4.0)


@dataclass(frozen=True, eq=False)
class Panels:
    """Charts beside and below each other, with one legend below them.

    Attributes
    ----------
    title : str
        Above them all.
    charts : tuple
        From left to right, row by row.
    across : int
        How many stand in a row.
    shared : bool
        Whether all share their axes.
    x, y : str
        Labels of the shared axes.
    legend : str
        The legend's title.
    size : (float, float)
    """

    title: str
    charts: tuple[Chart | RowChart, ...]
    across: int
    shared: bool = False
    x: str = ""
    y: str = ""
    legend: str = ""
    size: tuple[float, float] = (7.2, 4.2)

    @property
    def rows(self) -> list[tuple[Chart | RowChart, ...]]:
        """The charts of each row; the last one may have fewer."""
        return [self.charts[at : at + self.across] for at in range(0, len(self.charts), self.across)]


AnyChart = Chart | RowChart | Panels


def log_bins(iterations: FloatArray, *curves: FloatArray) -> tuple[FloatArray, ...]:
    """Average curves over bins that are equally wide on a logarithmic axis; return bin centres (from 1) and means.

    Examples
    --------
    >>> x, y = log_bins(np.arange(1000), np.ones(1000))
    >>> x.size < 120, float(x[0]), float(y[-1])
    (True, 1.0, 1.0)
    """
    places = np.asarray(iterations, dtype=np.float64) + 1.0
    numbers = np.floor(np.log10(places / places[0]) * BINS_PER_DECADE)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])
    counts = np.diff(np.append(starts, places.size))
    centres = 10 ** (np.add.reduceat(np.log10(places), starts) / counts)
    with np.errstate(invalid="ignore"):
        return (centres, *(np.add.reduceat(curve, starts) / counts for curve in curves))
