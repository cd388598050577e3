"""Result of a federation: curves, bytes and bad replies, as JSON and as labelled NetCDF."""

import datetime
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.types import FloatArray
from psofed.federation.deploy.summary import RunSummary, squared_errors
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.checks import Strikes
from psofed.federation.server.ready_made import evaluate_model
from psofed.federation.server.rounds import mean_without_overflow
from psofed.fleet import draw_fleet
from psofed.results import METRIC_TITLES, SimulationResult
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario

if TYPE_CHECKING:
    import xarray


def build_result(
    state: ServerState,
    history: Iterable[dict[str, Any]],
    settings: RunSettings,
    window: tuple[float, float],
) -> dict[str, Any]:
    """Return the result of a run as plain dicts.

    Parameters
    ----------
    state : ServerState
        After the last round.
    history : iterable of dict
        The entries of all rounds, which are gone through once.
    settings : RunSettings
        What was run.
    window : tuple of float
        Unix times of the run's begin and end.
    """
    summary = RunSummary(state.round_number)
    for record in history:
        summary.add(record)
    return {
        "kind": "federation",
        "version": __version__,
        "scenario": settings.scenario.to_mapping(),
        "seed": settings.seed,
        "settings": {key: value for key, value in settings.to_mapping().items() if key != "scenario"},
        **standing(state, settings),
        "started": _clock(window[0]),
        "finished": _clock(window[1]),
        "window": list(window),
        "rounds": state.round_number,
        "rounds_per_point": summary.width,
        "learning_curve": summary.learning_curve(),
        "communication": summary.communication(state),
        "examples": summary.totals["examples"],
        "idle_rounds": summary.totals["idle"],
        "nodes": dict(sorted(summary.nodes.items())),
        "bad_replies": state.strikes["counts"],
        "model": state.model.tolist() if state.model.size <= 10_000 else None,
        "history": state.history,
    }


def standing(state: ServerState, settings: RunSettings) -> dict[str, Any]:
    """Return what both status and result say: the session, the names of its columns, and who is left out.

    Banned clients are no longer asked, and resting ones not until after the round given. Suspects are there only if
    the run has a defence.
    """
    columns = state.layout.columns
    strikes = Strikes.from_mapping(state.strikes, settings.limits)
    return {
        "session": state.session,
        "columns": None if columns is None else columns.to_mapping(),
        "banned": sorted(strikes.banned),
        "resting": {name: last for name, last in strikes.resting.items() if last > state.round_number},
        **({"suspects": state.suspects["nodes"]} if state.suspects else {}),
    }


def latest_errors(state: ServerState) -> dict[str, float]:
    """Return the mean squared a-priori error that each node reported in the last round."""
    record = state.history[-1] if state.history else {"metrics": {}}
    reported = {node: list(squared_errors(metrics).values()) for node, metrics in record["metrics"].items()}
    return {node: mean_without_overflow(values) for node, values in reported.items() if values}


def save_dataset_of(result: dict[str, Any], path: Path) -> Path:
    """Write the curves as NetCDF beside the result at `path`; the server, which writes that, need not import xarray."""
    save_dataset(result_dataset(result), path.with_suffix(".nc"))
    return path.with_suffix(".nc")


def result_dataset(result: dict[str, Any]) -> "xarray.Dataset":
    """Return the curves as a labelled dataset that :func:`psofed.load_result` reads as one trial.

    As in a simulation, iteration n is round n + 1 and the server's metrics are those at its start. What was
    not measured is NaN.
    """
    scenario = Scenario.from_mapping(result["scenario"]).replace(iterations=result["rounds"])
    curve = {name: _floats(result["learning_curve"][name]) for name in METRIC_TITLES}
    if result["settings"]["synthetic"]:
        start = evaluate_model(scenario, np.zeros(scenario.dimension), result["seed"])
        for name in ("server_msd", "test_mse"):
            curve[name] = np.append(start[name.replace("_", "-")], curve[name][:-1])
    points, width = len(curve["network_mse"]), result["rounds_per_point"]
    tail = max(1, points // 4)
    half = tail // 2
    simulated = SimulationResult(
        scenario=scenario,
        fleet=draw_fleet(scenario),
        seed=result["seed"],
        tail=min(tail * width, result["rounds"]),
        bin_width=width,
        steady_state={name: np.array([values[-tail:].mean()]) for name, values in curve.items()},
        tail_change={
            name: np.array([values[-half:].mean() - values[-tail:-half].mean() if half else math.nan])
            for name, values in curve.items()
        },
        curve=curve,
        curve_standard_error={name: np.full(points, math.nan) for name in curve},
        diverged_at=np.array([-1]),
        trial_curves=None,
        seconds=result["window"][1] - result["window"][0],
        version=result["version"],
    )
    dataset = simulated.to_dataset()
    for way in ("down", "up"):
        values = np.array(result["learning_curve"][f"values_{way}"], dtype=np.int64)
        dataset[f"values_{way}"] = ("iteration", values)
    dataset.attrs["title"] = "psofed federation"
    dataset.attrs["communication"] = json.dumps(result["communication"])
    dataset.attrs["session"] = result["session"]
    return dataset


def _floats(values: list[float | None]) -> FloatArray:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _clock(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
