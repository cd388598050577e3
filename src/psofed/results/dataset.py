"""Arrays of results in labelled data sets; :mod:`psofed.results.netcdf` keeps these in files.

A table of :class:`Stored` declares every array of a result once: its name in files, dimensions, meaning and unit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psofed.common.errors import PsofedError
from psofed.results.metrics import METRIC_TITLES, label_of, read_label

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Stored:
    """How an attribute of a result is stored.

    Attributes
    ----------
    attribute : str
        Of the result: an array, or a dict of arrays by metric.
    name : str
        In files; with ``{}`` for the metric's name if there is one for each.
    dims : tuple of str
    words : str
        Its meaning; with ``{}`` for the metric's long name.
    unit : str
    kind : str
        NumPy's kind of number.
    is_optional : bool
        Whether it may be None.
    """

    attribute: str
    name: str
    dims: tuple[str, ...]
    words: str
    unit: str = "1"
    kind: str = "f"
    is_optional: bool = False


def to_variables(result: Any, table: Sequence[Stored]) -> dict[str, Any]:
    """Return the variables of a result's arrays; those that are None are left out."""
    variables: dict[str, Any] = {}
    for one in table:
        values = getattr(result, one.attribute)
        if isinstance(values, dict):
            for metric, array in values.items():
                variables[one.name.format(metric)] = metric_variable(one.dims, array, metric, one.words)
        elif values is not None:
            variables[one.name] = variable(one.dims, values, one.words, one.unit)
    return variables


def read_arrays(data: "xarray.Dataset", table: Sequence[Stored], metrics: Sequence[str]) -> dict[str, Any]:
    """Return a result's arrays from a data set, by attribute."""
    arrays: dict[str, Any] = {}
    for one in table:
        names = {metric: one.name.format(metric) for metric in metrics}
        if one.is_optional and next(iter(names.values())) not in data:
            arrays[one.attribute] = None
        elif "{}" in one.name:
            arrays[one.attribute] = {metric: numbers(data, name, one.dims) for metric, name in names.items()}
        else:
            arrays[one.attribute] = numbers(data, one.name, one.dims, one.kind)
    return arrays


def variable(dims: Any, values: Any, words: str, units: str | None = "1") -> tuple[Any, Any, dict[str, str]]:
    """Return a variable of a data set with its meaning in words; "1" is the unit of numbers without one."""
    return dims, values, {"long_name": words} | ({} if units is None else {"units": units})


def metric_variable(dims: Any, values: Any, metric: str, words: str) -> tuple[Any, Any, dict[str, Any]]:
    """Return a variable of a data set with its metric's label; ``{}`` in `words` is the metric's long name."""
    label = label_of(metric)
    attributes = {"title": label.title, "in_decibels": int(label.in_decibels)}
    dims, values, named = variable(dims, values, words.format(label.long_name), label.unit)
    return dims, values, {**named, **attributes}


def read_metrics(data: "xarray.Dataset") -> list[str]:
    """Return the names of the metrics in a data set, and learn the labels of those that are not known here."""
    names = json.loads(data.attrs["metrics"]) if "metrics" in data.attrs else list(METRIC_TITLES)
    for name in names:
        read_label(name, data[name].attrs)
    return [str(name) for name in names]


def numbers(data: "xarray.Dataset", name: str, dims: tuple[str, ...], kind: str = "f") -> Any:
    """Return a variable's values; refuse other dimensions, or another kind of number than NumPy's `kind`."""
    stored = data[name]
    if stored.dims != dims or stored.dtype.kind != kind:
        raise PsofedError(f"{name} has dimensions {stored.dims} and type {stored.dtype}, expected {dims}")
    return stored.values


def check_size(data: "xarray.Dataset", dim: str, expected: int) -> None:
    """Refuse a data set with another length along a dimension than its scenario implies."""
    if data.sizes.get(dim) != expected:
        raise PsofedError(f"length of dimension {dim} is {data.sizes.get(dim)}, expected {expected}")
