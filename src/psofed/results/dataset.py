"""Results as labelled data sets and as tables; :mod:`psofed.results.netcdf` keeps them in files."""

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.toml import parse_toml
from psofed.common.types import FloatArray
from psofed.fleet import Fleet, draw_fleet
from psofed.results.defence import DEFENCE_LONG_NAMES, DefenceRecord
from psofed.results.estimates import estimate
from psofed.results.metrics import METRIC_TITLES, label_of, read_label
from psofed.scenario import Scenario
from psofed.scenario.file import mapping_to_toml

if TYPE_CHECKING:
    import pandas
    import xarray

    from psofed.results.simulation import SimulationResult

SIMULATION_TITLE = "psofed simulation"
TABLES = ("trials", "curve", "clients")
# Arrays of a result that there is one of for each metric: their dimensions, and what they are of it.
_BY_METRIC = {
    "tail_change": (("trial",), "second half of the tail less its first: {}"),
    "curve": (("iteration",), "{}, mean over trials"),
    "curve_standard_error": (("iteration",), "standard error over trials: {}"),
    "trial_curves": (("trial", "iteration"), "{}, of each trial"),
}


def simulation_to_dataset(result: "SimulationResult") -> "xarray.Dataset":
    """Return a labelled data set, with everything needed to reproduce the result in its attributes."""
    import xarray

    variables: dict[str, Any] = {}
    for metric, values in result.steady_state.items():
        variables[metric] = metric_variable("trial", values, metric, "steady-state {}, by trial")
    for name, (dims, words) in _BY_METRIC.items():
        for metric, values in (getattr(result, name) or {}).items():
            variables[f"{metric}_{name}"] = metric_variable(dims, values, metric, words)
    if result.client_mse is not None:
        variables["client_mse"] = variable(
            ("trial", "client"), result.client_mse, "steady-state mean squared error of the client, by trial"
        )
    fleet = result.fleet
    variables["diverged_at"] = variable(
        "trial", result.diverged_at, "iteration in which the trial was seen to diverge, or -1", "iterations"
    )
    variables["input_variance"] = variable("client", fleet.input_variance, "variance of the client's inputs")
    variables["noise_variance"] = variable("client", fleet.noise_variance, "variance of the client's observation noise")
    variables["is_byzantine"] = variable(
        "client", fleet.byzantine_mask(result.scenario.attack), "whether the client is Byzantine"
    )
    if "data" in result.details:
        variables["target"] = variable("entry", fleet.target, "weights fitted to all rows")
        variables["covariances"] = variable(
            ("client", "entry", "other_entry"), fleet.covariances(), "covariance of the client's inputs"
        )
    watched: dict[str, Any] = {}
    if result.defence is not None:
        for name, counts in result.defence.arrays().items():
            variables[name] = variable(("trial", "client"), counts, *DEFENCE_LONG_NAMES[name])
        watched = {"defence_threshold": result.defence.threshold, "defence_variance": result.defence.variance}
    clients: Any = np.arange(result.scenario.num_clients)
    coordinates = {
        "trial": variable("trial", np.arange(result.trials), "number of the trial"),
        "iteration": variable("iteration", result.iterations, "first iteration of the point", "iterations"),
        "client": variable("client", clients, "number of the client"),
    }
    if fleet.names:
        names = np.array(fleet.names, dtype=object)
        coordinates["client"] = variable("client", names, "name of the client", None)
        coordinates["client_number"] = variable("client", clients, "number of the client")
    return xarray.Dataset(
        variables,
        coords=coordinates,
        attrs={
            "title": SIMULATION_TITLE,
            "scenario": mapping_to_toml(result.scenario.to_mapping()),
            "seed": result.seed,
            "version": result.version,
            "tail": result.tail,
            "bin_width": result.bin_width,
            "seconds": result.seconds,
            "communication": json.dumps(result.communication.to_json()),
            "details": json.dumps(result.details),
            "notes": json.dumps(result.notes),
            "metrics": json.dumps(list(result.steady_state)),
            **({} if result.stopping is None else {"stopping": json.dumps(asdict(result.stopping))}),
            **watched,
        },
    )


def simulation_from_dataset(data: "xarray.Dataset") -> "SimulationResult":
    """Return the result that a data set of :func:`simulation_to_dataset` describes.

    Raises
    ------
    PsofedError
        If its shapes do not fit its scenario.
    """
    from psofed.results.simulation import SimulationResult, Stopping

    scenario = Scenario.from_mapping(parse_toml(data.attrs["scenario"]))
    bin_width = int(data.attrs["bin_width"])
    check_size(data, "client", scenario.num_clients)
    check_size(data, "iteration", math.ceil(scenario.iterations / bin_width))

    metrics = read_metrics(data)

    def by_metric(name: str) -> dict[str, FloatArray]:
        return {metric: numbers(data, f"{metric}_{name}", _BY_METRIC[name][0]) for metric in metrics}

    details = json.loads(data.attrs.get("details", "{}"))
    fleet = _measured_fleet(data, scenario) if "data" in details else draw_fleet(scenario)
    return SimulationResult(
        scenario=scenario,
        fleet=fleet,
        seed=int(data.attrs["seed"]),
        tail=int(data.attrs["tail"]),
        bin_width=bin_width,
        steady_state={metric: numbers(data, metric, ("trial",)) for metric in metrics},
        tail_change=by_metric("tail_change"),
        curve=by_metric("curve"),
        curve_standard_error=by_metric("curve_standard_error"),
        diverged_at=numbers(data, "diverged_at", ("trial",), "i"),
        trial_curves=by_metric("trial_curves") if "network_mse_trial_curves" in data else None,
        seconds=float(data.attrs["seconds"]),
        version=str(data.attrs["version"]),
        details=details,
        notes=tuple(json.loads(data.attrs.get("notes", "[]"))),
        defence=_defence_record(data, scenario, fleet) if "first_excluded_at" in data else None,
        client_mse=numbers(data, "client_mse", ("trial", "client")) if "client_mse" in data else None,
        stopping=Stopping(**json.loads(data.attrs["stopping"])) if "stopping" in data.attrs else None,
    )


def simulation_to_dataframe(result: "SimulationResult", table: str) -> "pandas.DataFrame":
    """Return one of a result's tables (see :meth:`SimulationResult.to_dataframe`)."""
    import pandas

    from psofed.common.validation import check_choice

    check_choice("table", table, TABLES)
    if table == "trials":
        return pandas.DataFrame(
            {"trial": np.arange(result.trials), **result.steady_state, "diverged_at": result.diverged_at}
        )
    if table == "curve":
        parts = [
            pandas.DataFrame(
                {
                    "iteration": result.iterations,
                    "metric": metric,
                    "mean": result.curve[metric],
                    "standard_error": result.curve_standard_error[metric],
                }
            )
            for metric in result.curve
        ]
        return pandas.concat(parts, ignore_index=True)
    fleet = result.fleet
    frame = pandas.DataFrame(
        {
            "client": list(fleet.names) or np.arange(fleet.num_clients),
            "input_variance": fleet.input_variance,
            "noise_variance": fleet.noise_variance,
            "is_byzantine": fleet.byzantine_mask(result.scenario.attack),
        }
    )
    if result.client_mse is not None:
        values = [estimate(column) for column in result.client_mse.T]
        frame["mse"] = [value.mean for value in values]
        frame["mse_standard_error"] = [value.standard_error for value in values]
    measured = result.details.get("data", {}).get("clients")
    if measured:
        more = pandas.DataFrame(measured).drop(columns=["name", *frame.columns], errors="ignore")
        frame = pandas.concat([frame, more], axis=1)
    return frame


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


def _defence_record(data: "xarray.Dataset", scenario: Scenario, fleet: Fleet) -> DefenceRecord:
    dims = ("trial", "client")
    return DefenceRecord(
        threshold=float(data.attrs["defence_threshold"]),
        variance=str(data.attrs["defence_variance"]),
        iterations=scenario.iterations,
        is_byzantine=DefenceRecord.who_attacks(scenario, fleet),
        first=numbers(data, "first_excluded_at", dims, "i"),
        exclusions=numbers(data, "exclusions", dims, "i"),
        time_out=numbers(data, "iterations_excluded", dims, "i"),
    )


def _measured_fleet(data: "xarray.Dataset", scenario: Scenario) -> Fleet:
    # The user's table is not in the file; its statistics are.
    check_size(data, "entry", scenario.dimension)
    names: tuple[str, ...] = ()
    if "client_number" in data.coords:
        names = tuple(str(name) for name in data["client"].values)
    return Fleet(
        target=numbers(data, "target", ("entry",)),
        input_variance=numbers(data, "input_variance", ("client",)),
        noise_variance=numbers(data, "noise_variance", ("client",)),
        correlation=0.0,
        explicit_covariances=numbers(data, "covariances", ("client", "entry", "other_entry")),
        names=names,
    )
