"""Result of a federation: curves, bytes and bad replies, as JSON and as labelled NetCDF."""

import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.files import write_json
from psofed.common.types import FloatArray
from psofed.federation.client.synthetic import evaluate_model
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.traffic import SocketTraffic
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.checks import Conduct
from psofed.federation.server.rounds import mean_without_overflow
from psofed.fleet import draw_fleet
from psofed.results import METRIC_TITLES, SimulationResult
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario

if TYPE_CHECKING:
    import xarray


def build_result(
    state: ServerState, settings: RunSettings, counted: SocketTraffic | None, window: tuple[float, float]
) -> dict[str, Any]:
    """Return the result of a run as plain dicts.

    Parameters
    ----------
    state : ServerState
        After the last round.
    settings : RunSettings
        What was run.
    counted : SocketTraffic or None
        Bytes counted at the socket during the run, if the relay was there to count.
    window : tuple of float
        Unix times of the run's begin and end.
    """
    rounds = state.round_number
    return {
        "kind": "federation",
        "version": __version__,
        "scenario": settings.scenario.to_mapping(),
        "seed": settings.seed,
        "settings": settings.options_to_config(),
        "session": state.session,
        "started": _clock(window[0]),
        "finished": _clock(window[1]),
        "window": list(window),
        "rounds": rounds,
        "learning_curve": learning_curve(state),
        "communication": communication(state, counted),
        "examples": sum(record["examples"] for record in state.history),
        "nodes": describe_nodes(state),
        "bad_replies": state.conduct["counts"],
        "benched": benched(state, settings),
        **({"suspects": state.suspects["nodes"]} if state.suspects else {}),
        "columns": columns_of(state),
        "model": state.model.tolist() if state.model.size <= 10_000 else None,
        "history": state.history,
    }


def columns_of(state: ServerState) -> dict[str, Any] | None:
    """Return the names of the run's columns; None if they have none."""
    columns = state.layout.columns
    return None if columns is None else columns.to_mapping()


def latest_errors(state: ServerState) -> dict[str, float]:
    """Return the mean squared a-priori error that each node reported in the last round."""
    record = state.history[-1] if state.history else {"metrics": {}}
    reported = {node: list(_squared_errors(metrics).values()) for node, metrics in record["metrics"].items()}
    return {node: mean_without_overflow(values) for node, values in reported.items() if values}


def describe_nodes(state: ServerState) -> dict[str, dict[str, Any]]:
    """Return for every node, by name, its rounds, examples, last remark and error, and the privacy it says it spent."""
    nodes: dict[str, dict[str, Any]] = {}
    for record in state.history:
        for name in record["participants"]:
            entry = nodes.setdefault(name, {"rounds": 0, "examples": 0, "remark": "", "error": ""})
            entry["rounds"] += name in record["accepted"]
            entry["examples"] += record["examples_by_node"].get(name, 0)
            entry["remark"] = record["remarks"].get(
                name, "" if name in record["accepted"] else entry["remark"]
            )
            entry["error"] = record["reasons"].get(name, entry["error"])
            told = record.get("metrics", {}).get(name, {})
            if "privacy-epsilon" in told:
                entry["privacy"] = {
                    each: told.get(f"privacy-{each}") for each in ("epsilon", "delta", "uploads")
                }
    return dict(sorted(nodes.items()))


def learning_curve(state: ServerState) -> dict[str, list[Any]]:
    """Return by round the clients' mean squared a-priori error, and the server's MSD and test MSE after it.

    The network MSE of round n is the mean of e² over all clients that have reported on that round by the end; a client
    left out reports when it is next asked. These are the clients' own reports; a Byzantine client may report anything.
    """
    errors: dict[int, dict[str, float]] = {}
    for record in state.history:
        for node, metrics in record["metrics"].items():
            for number, value in _squared_errors(metrics).items():
                errors.setdefault(number, {})[node] = value
    numbers = [record["round"] for record in state.history]
    evaluations = [record.get("evaluation", {}) for record in state.history]
    return {
        "round": numbers,
        "network_mse": [
            mean_without_overflow(list(errors[n].values())) if n in errors else None for n in numbers
        ],
        "clients_reporting": [len(errors.get(n, {})) for n in numbers],
        "server_msd": [evaluation.get("server-msd") for evaluation in evaluations],
        "test_mse": [evaluation.get("test-mse") for evaluation in evaluations],
        "seconds": [record["seconds"] for record in state.history],
    }


def communication(state: ServerState, counted: SocketTraffic | None) -> dict[str, Any]:
    """Return numbers and bytes exchanged, against full sharing, and what was counted at the socket."""
    down, up = (sum(record[f"values_{way}"] for record in state.history) for way in ("down", "up"))
    messages = sum(len(record["participants"]) for record in state.history)
    replies = sum(len(record["accepted"]) for record in state.history)
    item, dimension = state.layout.dtype.itemsize, state.layout.dimension
    full = (messages + replies) * dimension
    return {
        "messages_down": messages,
        "messages_up": replies,
        "values_down": down,
        "values_up": up,
        "payload_bytes_down": down * item,
        "payload_bytes_up": sum(record["bytes_up"] for record in state.history),
        "full_sharing_payload_bytes": full * item,
        "fraction_of_full_sharing": (down + up) / full if full else None,
        "socket_bytes_down": None if counted is None else counted.down,
        "socket_bytes_up": None if counted is None else counted.up,
    }


def benched(state: ServerState, settings: RunSettings) -> list[str]:
    """Return the nodes that were asked no more at the end."""
    return sorted(str(node) for node in Conduct.from_mapping(state.conduct, settings.limits).benched)


def save_result(result: dict[str, Any], path: Path) -> None:
    """Write `result` as JSON to `path` and its curves as NetCDF beside it, both atomically."""
    write_json(path, result)
    save_dataset(result_dataset(result), path.with_suffix(".nc"))


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
    rounds = len(curve["network_mse"])
    tail = max(1, rounds // 4)
    half = tail // 2
    simulated = SimulationResult(
        scenario=scenario,
        fleet=draw_fleet(scenario),
        seed=result["seed"],
        tail=tail,
        bin_width=1,
        steady_state={name: np.array([values[-tail:].mean()]) for name, values in curve.items()},
        tail_change={
            name: np.array([values[-half:].mean() - values[-tail:-half].mean() if half else math.nan])
            for name, values in curve.items()
        },
        curve=curve,
        curve_standard_error={name: np.full(rounds, math.nan) for name in curve},
        diverged_at=np.array([-1]),
        trial_curves=None,
        seconds=result["window"][1] - result["window"][0],
        version=result["version"],
    )
    dataset = simulated.to_dataset()
    for way in ("down", "up"):
        values = np.array([record[f"values_{way}"] for record in result["history"]], dtype=np.int64)
        dataset[f"values_{way}"] = ("iteration", values)
    dataset.attrs["title"] = "psofed federation"
    dataset.attrs["communication"] = json.dumps(result["communication"])
    dataset.attrs["session"] = result["session"]
    return dataset


def _squared_errors(metrics: Mapping[str, Any]) -> dict[int, float]:
    """Return the squared errors that a node reports, by round; it may report anything."""
    values, last = metrics.get("squared-errors"), metrics.get("last-round")
    if not isinstance(values, list) or not isinstance(last, int | float):
        return {}
    numbered = enumerate(reversed(values))
    return {int(last) - back: float(value) for back, value in numbered if value is not None and value >= 0}


def _floats(values: list[float | None]) -> FloatArray:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _clock(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
