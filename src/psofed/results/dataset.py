"""Results as labelled data sets and tables, and in NetCDF files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.files import atomic_path
from psofed.common.types import FloatArray
from psofed.fleet import Fleet, draw_fleet
from psofed.results.defence import DEFENCE_LONG_NAMES, DefenceRecord
from psofed.results.metrics import EVASION_LONG_NAMES, LONG_NAMES, METRIC_TITLES
from psofed.scenario import Scenario

if TYPE_CHECKING:
    import pandas
    import xarray

    from psofed.results.simulation import SimulationResult

SIMULATION_TITLE = "psofed simulation"
TABLES = ("trials", "curve", "clients")


def simulation_to_dataset(result: "SimulationResult") -> "xarray.Dataset":
    """Return a labelled data set, with all that is needed to make the result again in its attributes."""
    import xarray

    variables: dict[str, Any] = {}
    for metric, words in LONG_NAMES.items():
        variables[metric] = variable("trial", result.steady_state[metric], f"steady-state {words}, by trial")
        variables[f"{metric}_tail_change"] = variable(
            "trial", result.tail_change[metric], f"second half of the tail less its first: {words}"
        )
        variables[f"{metric}_curve"] = variable(
            "iteration", result.curve[metric], f"{words}, mean over trials"
        )
        variables[f"{metric}_curve_standard_error"] = variable(
            "iteration", result.curve_standard_error[metric], f"standard error over trials: {words}"
        )
        if result.trial_curves is not None:
            variables[f"{metric}_trial_curves"] = variable(
                ("trial", "iteration"), result.trial_curves[metric], f"{words}, of each trial"
            )
    for metric, values in (result.evasion or {}).items():
        words = EVASION_LONG_NAMES[metric]
        variables[metric] = variable("trial", values, f"steady-state {words}, by trial")
    fleet = result.fleet
    variables["diverged_at"] = variable(
        "trial", result.diverged_at, "iteration in which the trial was seen to diverge, or -1", "iterations"
    )
    variables["input_variance"] = variable("client", fleet.input_variance, "variance of the client's inputs")
    variables["noise_variance"] = variable(
        "client", fleet.noise_variance, "variance of the client's observation noise"
    )
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
        watched = {
            "defence_threshold": result.defence.threshold,
            "defence_variance": result.defence.variance,
        }
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
            "scenario": result.scenario.to_toml(),
            "seed": result.seed,
            "version": result.version,
            "tail": result.tail,
            "bin_width": result.bin_width,
            "seconds": result.seconds,
            "communication": json.dumps(result.communication.to_json()),
            "details": json.dumps(result.details),
            "notes": json.dumps(result.notes),
            **watched,
        },
    )


def simulation_from_dataset(data: "xarray.Dataset") -> "SimulationResult":
    """Make the result again from its data set."""
    from psofed.results.simulation import SimulationResult

    scenario = Scenario.from_toml(data.attrs["scenario"])

    def by_metric(suffix: str) -> dict[str, FloatArray]:
        return {metric: data[f"{metric}{suffix}"].values for metric in METRIC_TITLES}

    details = json.loads(data.attrs.get("details", "{}"))
    fleet = _measured_fleet(data) if "data" in details else draw_fleet(scenario)
    return SimulationResult(
        scenario=scenario,
        fleet=fleet,
        seed=int(data.attrs["seed"]),
        tail=int(data.attrs["tail"]),
        bin_width=int(data.attrs["bin_width"]),
        steady_state=by_metric(""),
        tail_change=by_metric("_tail_change"),
        curve=by_metric("_curve"),
        curve_standard_error=by_metric("_curve_standard_error"),
        diverged_at=data["diverged_at"].values,
        trial_curves=by_metric("_trial_curves") if "network_mse_trial_curves" in data else None,
        seconds=float(data.attrs["seconds"]),
        version=str(data.attrs["version"]),
        details=details,
        notes=tuple(json.loads(data.attrs.get("notes", "[]"))),
        evasion=None
        if scenario.evasion is None
        else {metric: data[metric].values for metric in EVASION_LONG_NAMES},
        defence=_defence_record(data, scenario, fleet) if "first_excluded_at" in data else None,
    )


def simulation_to_dataframe(result: "SimulationResult", table: str) -> "pandas.DataFrame":
    """Return one of a result's tables (see :meth:`SimulationResult.to_dataframe`)."""
    import pandas

    from psofed.common.validation import check_choice

    check_choice("table", table, TABLES)
    if table == "trials":
        columns = {metric: result.steady_state[metric] for metric in METRIC_TITLES} | (result.evasion or {})
        return pandas.DataFrame(
            {"trial": np.arange(result.trials), **columns, "diverged_at": result.diverged_at}
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
            for metric in METRIC_TITLES
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
    measured = result.details.get("data", {}).get("clients")
    if measured:
        more = pandas.DataFrame(measured).drop(columns=["name", "is_byzantine"], errors="ignore")
        frame = pandas.concat([frame, more], axis=1)
    return frame


def check_netcdf_name(path: str | Path) -> None:
    """Refuse a name that promises another kind of file, before any work is done."""
    if Path(path).suffix.lower() != ".nc":
        raise InvalidValueError("out", str(path), "a name ending in .nc (NetCDF)")


def save_dataset(data: "xarray.Dataset", path: str | Path) -> None:
    """Write a data set as NetCDF, whole or not at all."""
    check_netcdf_name(path)
    # In memory first: on a full disk HDF5 leaves its file open, and the process crashes when it ends.
    content = data.to_netcdf(engine="h5netcdf")
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def open_dataset(path: str | Path) -> "xarray.Dataset":
    """Read a NetCDF file that psofed wrote; refuse any other by name."""
    import xarray

    if Path(path).is_dir():
        raise PsofedError(f"{path}: is a folder, not a result")
    try:
        with xarray.open_dataset(path, engine="h5netcdf") as opened:
            return opened.load()
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except (OSError, KeyError, ValueError) as error:
        raise PsofedError(f"{path}: not a psofed result ({error})") from None


def read_back(path: str | Path, data: "xarray.Dataset", make: "Callable[[xarray.Dataset], Any]") -> Any:
    """Make a result from a data set, and name its file where that fails."""
    try:
        return make(data)
    except PsofedError as error:  # such as a part of one's own that is not loaded
        raise PsofedError(f"{path}: {error}") from None
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise PsofedError(f"{path}: not a psofed result ({error})") from None


def variable(dims: Any, values: Any, words: str, units: str | None = "1") -> tuple[Any, Any, dict[str, str]]:
    """Return a variable of a data set with its meaning in words; "1" is the unit of numbers without one."""
    return dims, values, {"long_name": words} | ({} if units is None else {"units": units})


def _defence_record(data: "xarray.Dataset", scenario: Scenario, fleet: Fleet) -> DefenceRecord:
    return DefenceRecord(
        threshold=float(data.attrs["defence_threshold"]),
        variance=str(data.attrs["defence_variance"]),
        iterations=scenario.iterations,
        is_byzantine=DefenceRecord.who_lies(scenario, fleet),
        first=data["first_excluded_at"].values,
        exclusions=data["exclusions"].values,
        time_out=data["iterations_excluded"].values,
    )


def _measured_fleet(data: "xarray.Dataset") -> Fleet:
    # Data of one's own are not in the file; their statistics are.
    names: tuple[str, ...] = ()
    if "client_number" in data.coords:
        names = tuple(str(name) for name in data["client"].values)
    elif "client_name" in data:  # files of before 0.2
        names = tuple(str(name) for name in data["client_name"].values)
    return Fleet(
        target=data["target"].values,
        input_variance=data["input_variance"].values,
        noise_variance=data["noise_variance"].values,
        correlation=0.0,
        explicit_covariances=data["covariances"].values,
        names=names,
    )
