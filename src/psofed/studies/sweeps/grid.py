"""Which scenarios a sweep visits: a base scenario, and lists of values for any of its fields."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError, MissingValueError, PsofedError, UnknownFieldError
from psofed.common.toml import read_toml
from psofed.common.types import IntArray
from psofed.common.validation import check_tail
from psofed.parts.base import Metric
from psofed.parts.part import Part
from psofed.render.numbers import significant
from psofed.results.metrics import find_metrics, is_measured_by_client, metric_name
from psofed.scenario import Scenario
from psofed.scenario.changes import with_values
from psofed.scenario.file import as_scenario, read_scenario, refuse_table
from psofed.scenario.mapping import part_or_value, scenario_from_mapping
from psofed.settings.sweep import SweepSettings
from psofed.studies.sweeps.cell import Cell

RUN = ("trials", "seed", "tail", "metrics", "precision")  # settings of every point


@dataclass(frozen=True)
class Axis:
    """Values that one field takes in turn, or that several fields take together.

    Attributes
    ----------
    fields : tuple of str
        Dotted names, as in the TOML file (``attack.num_byzantine``). The first one labels the axis.
    values : tuple of tuples
        One entry per point of the axis, holding a value for each field.

    Examples
    --------
    >>> Axis(("stepsize", "iterations"), ((0.01, 8000), (0.1, 2000))).labels
    [0.01, 0.1]
    >>> from psofed.attacks import SignFlip
    >>> Axis(("attack",), tuple((SignFlip(num_byzantine=n),) for n in (1, 2))).labels
    ['sign-flip(num_byzantine=1)', 'sign-flip(num_byzantine=2)']
    """

    fields: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    @property
    def name(self) -> str:
        """The field that labels the axis."""
        return self.fields[0]

    @property
    def labels(self) -> list[Any]:
        """A number, string or truth value per point; parts by name, other values (ranges, lists) as JSON text."""
        first = [_label(point[0]) for point in self.values]
        if len({str(value) for value in first}) < len(first):  # parts of one kind that differ in options
            first = _tell_apart([point[0] for point in self.values])
        plain = all(isinstance(value, bool | int | float | str) for value in first)
        alike = len({isinstance(value, str) for value in first}) == 1
        return first if plain and alike else [json.dumps(value) for value in first]

    @property
    def is_numeric(self) -> bool:
        """Whether all labels are numbers."""
        return all(isinstance(label, int | float) and not isinstance(label, bool) for label in self.labels)


@dataclass(frozen=True)
class Grid:
    """Every combination of the axes' values, each a change to the base scenario.

    Attributes
    ----------
    base : Scenario
        What all points have in common.
    axes : tuple of Axis
        The last one varies fastest.
    trials, seed : int
        Of every simulation; equal seeds make all comparisons within the grid paired.
    tail : float or int
        The end that counts as steady state: a fraction of the iterations below 1, or a number of them.
    metrics : tuple of str or Metric
        Metrics to measure beyond those of every run; points are ranked by the first.
    precision : float, optional
        Where every point stops, in dB (:class:`psofed.results.Stopping`).

    Examples
    --------
    >>> base = Scenario(num_clients=10, dimension=3)
    >>> grid = Grid(base, (Axis(("num_shared",), ((1,), (3,))), Axis(("stepsize",), ((0.1,), (0.2,)))))
    >>> [(s.num_shared, s.stepsize) for s in grid.scenarios()]
    [(1, 0.1), (1, 0.2), (3, 0.1), (3, 0.2)]
    """

    base: Scenario
    axes: tuple[Axis, ...]
    trials: int = SweepSettings.trials
    seed: int = SweepSettings.seed
    tail: float = SweepSettings.tail
    metrics: tuple[str | Metric, ...] = ()
    precision: str | float | None = None

    def __post_init__(self) -> None:
        checked = SweepSettings(**{name: getattr(self, name) for name in RUN})
        object.__setattr__(self, "metrics", checked.metrics)
        object.__setattr__(self, "precision", checked.precision)
        for axis in self.axes:
            for field in axis.fields:
                lists = [", ".join(each.fields) for each in self.axes for other in each.fields if other == field]
                if len(lists) > 1:
                    raise InvalidValueError(f"grid.{field}", lists, "in one list, not twice")
            if len(set(map(json.dumps, axis.labels))) < len(axis.values):
                raise InvalidValueError(f"grid.{axis.name}", axis.labels, "a list of distinct values")

    def place(self, field: str) -> int:
        """Return which axis varies a field; refuse a field that does not vary, by name."""
        for number, axis in enumerate(self.axes):
            if field in axis.fields:
                return number
        raise UnknownFieldError(field, tuple(axis.name for axis in self.axes), "field of this sweep")

    @property
    def ranked_by(self) -> str:
        """The metric that decides which point is best: the first that was asked for, or the network MSE."""
        return metric_name(self.metrics[0]) if self.metrics else "network_mse"

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis."""
        return tuple(len(axis.values) for axis in self.axes)

    def scenarios(self) -> Iterator[Scenario]:
        """Yield the scenario of every point, in the order of the axes."""
        fields = [field for axis in self.axes for field in axis.fields]
        for point in itertools.product(*(axis.values for axis in self.axes)):
            yield with_values(self.base, dict(zip(fields, itertools.chain(*point), strict=True)))

    def cells(self) -> list[Cell]:
        """Return the cell of every point, in the order of the axes."""
        metrics = find_metrics(self.metrics)
        precision = None if self.precision is None else float(self.precision)
        return [
            Cell(s, self.trials, self.seed, check_tail(self.tail, s.iterations), metrics, precision)
            for s in self.scenarios()
        ]

    def places(self, down: Sequence[int], across: Sequence[int]) -> IntArray:
        """Return the numbers of all points as a matrix: its rows are all values of some axes, its columns of others."""
        places = np.arange(math.prod(self.shape)).reshape(self.shape).transpose(*down, *across)
        return places.reshape(-1, math.prod(self.shape[axis] for axis in across))

    def checked(self) -> "Grid":
        """Return the grid if every point of it is a valid scenario, before the first is computed."""
        metrics = find_metrics(self.metrics)
        for scenario in self.scenarios():
            check_tail(self.tail, scenario.iterations)
            is_measured_by_client(scenario, metrics)  # refuses the honest MSE where nobody is honest
        return self

    def to_plain(self) -> dict[str, Any]:
        """Return plain values that :meth:`from_plain` reads back; parts as in a file, metrics by name."""
        return {
            "base": self.base.to_mapping(),
            "axes": [
                [axis.fields, [[v.to_mapping() if isinstance(v, Part) else v for v in point] for point in axis.values]]
                for axis in self.axes
            ],
            **{name: getattr(self, name) for name in RUN if name != "metrics"},
            "metrics": list(map(metric_name, self.metrics)),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Grid":
        """Make the grid again."""
        axes = tuple(
            Axis(tuple(fields), tuple(tuple(map(part_or_value, fields, point)) for point in points))
            for fields, points in plain["axes"]
        )
        return cls(Scenario.from_mapping(plain["base"]), axes, **{name: plain[name] for name in RUN})


def make_grid(base: Scenario | str | Path, grid: Mapping[Any, Any], **settings: Any) -> Grid:
    """Make a grid from lists of values by field; a tuple of fields takes tuples of values.

    `settings` are further fields of :class:`Grid`.

    Examples
    --------
    >>> from psofed.attacks import Gaussian, SignFlip
    >>> base = Scenario(num_clients=10, dimension=3)
    >>> attacks = [None, Gaussian(num_byzantine=2), SignFlip(num_byzantine=2)]
    >>> grid = make_grid(base, {"attack": attacks, ("stepsize", "iterations"): [(0.1, 100), (0.01, 1000)]})
    >>> grid.shape, grid.axes[0].labels
    ((3, 2), ['none', 'gaussian', 'sign-flip'])
    """
    if not isinstance(grid, Mapping) or not grid:
        raise InvalidValueError("grid", grid, 'a mapping of fields to values, for example {"num_shared": [1, 5]}')
    axes = tuple(_axis(key, values) for key, values in grid.items())
    return Grid(as_scenario(base, "base"), axes, **settings).checked()


def read_grid(path: str | Path) -> Grid:
    """Read a grid from a TOML file.

    ``[base]`` is a scenario (or ``base = "scenario.toml"``, a file beside the grid's); ``[grid]`` has a list
    of values for each field that varies; ``trials``, ``seed``, ``tail``, ``metrics`` and ``precision`` are optional.
    """
    path = Path(path)
    refuse_table(
        path, "a grid. Write a grid file that names it: [base.data] with file, client_column and target_column."
    )
    try:
        values = read_toml(path)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    if "base" not in values and "grid" not in values and "num_clients" in values:
        raise PsofedError(
            f"{path}: this is a scenario, and a sweep needs a grid file: "
            f'base = "{path.name}" and a table [grid] with a list of values for at least one field.'
        )
    try:
        return grid_from_mapping(values, path.parent)
    except PsofedError as error:
        raise error.at(str(path)) from None


def grid_from_mapping(values: Mapping[str, Any], folder: Path = Path()) -> Grid:
    """Make a grid from nested mappings; a `base` that is a file name is looked for in `folder`.

    Examples
    --------
    >>> grid = grid_from_mapping(
    ...     {"base": {"num_clients": 10, "dimension": 3}, "grid": {"attack": {"num_byzantine": [0, 2]}}}
    ... )
    >>> grid.axes[0].fields, grid.shape
    (('attack.num_byzantine',), (2,))
    """
    for key in values:
        if key not in ("base", "grid", *RUN):
            raise UnknownFieldError(key, ("base", "grid", *RUN))
    base: Any = values.get("base")
    grid: Any = values.get("grid")
    for name, value, kinds, allowed in (
        ("base", base, str | Mapping, 'a table [base] or a file name, base = "scenario.toml"'),
        ("grid", grid or None, Mapping, "a table [grid] with a list of values for at least one field"),
    ):
        if not isinstance(value, kinds):
            raise MissingValueError(name, allowed) if value is None else InvalidValueError(name, value, allowed)
    if isinstance(base, str):
        scenario = read_scenario(folder / base)
    else:
        scenario = scenario_from_mapping(base, folder=folder, opening=True)
    axes = tuple(_axis_from_table(key, value) for key, value in _flatten(grid))
    return Grid(scenario, axes, **{name: values[name] for name in RUN if name in values}).checked()


def _label(value: Any) -> Any:
    if value is None:
        return "none"
    return value.kind if isinstance(value, Part) else value


def _tell_apart(values: list[Any]) -> list[Any]:
    """Label parts by kind and by the options in which those of one kind differ."""
    options = [value.to_mapping() if isinstance(value, Part) else {} for value in values]
    labels = []
    for value, plain in zip(values, options, strict=True):
        others = [other for other in options if other.get("kind") == plain.get("kind")]
        differing = [f"{name}={plain[name]}" for name in plain if any(o.get(name) != plain[name] for o in others)]
        labels.append(f"{_label(value)}({', '.join(differing)})" if differing else _label(value))
    return labels


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _axis_from_table(key: str, values: Any) -> Axis:
    """Make an axis of a grid file: ``"a, b"`` are fields that vary together, and a table stands for a part."""
    fields = tuple(field.strip() for field in key.split(","))
    if len(fields) > 1:
        return _axis(fields, values)
    return _axis(key, [part_or_value(key, value) for value in values] if isinstance(values, list) else values)


def _axis(key: str | tuple[str, ...], values: Any) -> Axis:
    """Make an axis of one field and a list of values, or of several and a list of tuples."""
    fields = key if isinstance(key, tuple) else (key,)
    name = f"grid.{fields[0]}" if len(fields) == 1 else f'grid."{", ".join(fields)}"'
    is_list = hasattr(values, "__iter__") and not isinstance(values, str | bytes | Mapping)
    points = list(values) if is_list else []
    if not points:
        raise InvalidValueError(name, values, "a list of values, for example [0.05, 0.1, 0.15]")
    if not isinstance(key, tuple):
        # A NumPy number is as good as Python's own, and TOML knows only the latter.
        return Axis(fields, tuple((v.item() if isinstance(v, np.generic) else v,) for v in points))
    for point in points:
        if not isinstance(point, list | tuple) or len(point) != len(fields):
            raise InvalidValueError(name, point, f"a list with {len(fields)} values in each entry, one for each field")
    return Axis(fields, tuple(map(tuple, points)))


def name_point(labels: Mapping[str, Any]) -> str:
    """Name a point by its fields.

    Examples
    --------
    >>> name_point({"num_shared": 1, "stepsize": 0.05})
    'num_shared = 1, stepsize = 0.05'
    """
    return ", ".join(f"{name} = {significant(x) if isinstance(x, float) else x}" for name, x in labels.items())
