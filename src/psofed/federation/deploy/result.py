"""Result of a federation: curves, bytes and bad replies, as JSON and as labelled NetCDF."""

import datetime
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.types import FloatArray
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.checks import mean_without_overflow
from psofed.federation.server.clients import Strikes
from psofed.federation.server.ready_made import evaluate_model
from psofed.fleet import draw_fleet
from psofed.results import METRIC_TITLES, SimulationResult
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario

if TYPE_CHECKING:
    import xarray

MOST_POINTS = 10_000  # of a learning curve; more rounds are averaged, as in a simulation
_MEANS = ("network_mse", "server_msd", "test_mse", "seconds")


def build_result(
    state: ServerState, history: Iterable[dict[str, Any]], settings: RunSettings, window: tuple[float, float]
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
    for entry in history:
        summary.add(entry)
    totals = summary.totals
    full = (totals["messages"] + totals["replies"]) * state.layout.dimension
    item = state.layout.dtype.itemsize
    clocks = (datetime.datetime.fromtimestamp(seconds, datetime.UTC) for seconds in window)
    started, finished = (clock.isoformat(timespec="seconds") for clock in clocks)
    return {
        "kind": "federation",
        "version": __version__,
        "scenario": settings.scenario.to_mapping(),
        "seed": settings.seed,
        "settings": {key: value for key, value in settings.to_mapping().items() if key != "scenario"},
        **standing(state, settings),
        "started": started,
        "finished": finished,
        "window": list(window),
        "rounds": state.round_number,
        "rounds_per_point": summary.width,
        "learning_curve": summary.learning_curve(),
        "communication": {
            "messages_down": totals["messages"],
            "messages_up": totals["replies"],
            "values_down": totals["values_down"],
            "values_up": totals["values_up"],
            "payload_bytes_down": totals["values_down"] * item,
            "payload_bytes_up": totals["bytes_up"],
            "full_sharing_payload_bytes": full * item,
            "fraction_of_full_sharing": (totals["values_down"] + totals["values_up"]) / full if full else None,
        },
        "examples": totals["examples"],
        "idle_rounds": totals["idle"],
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
    strikes = Strikes(settings.limits, **state.strikes)
    return {
        "session": state.session,
        "columns": None if columns is None else columns.to_mapping(),
        "banned": sorted(strikes.banned),
        "resting": {name: last for name, last in strikes.resting.items() if last > state.round_number},
        **({"suspects": state.suspects["nodes"]} if state.suspects else {}),
    }


def latest_errors(state: ServerState) -> dict[str, float]:
    """Return the mean squared a-priori error that each node reported in the last round."""
    metrics = state.history[-1]["metrics"] if state.history else {}
    reported = {node: list(_squared_errors(each).values()) for node, each in metrics.items()}
    return {node: mean_without_overflow(values) for node, values in reported.items() if values}


class RunSummary:
    """Learning curve, traffic and nodes of a run, gathered in one pass over its rounds.

    Parameters
    ----------
    rounds : int
        How many rounds there are; beyond 10,000 each point of the curve is the mean of `width` of them.

    Attributes
    ----------
    nodes : dict
        For every node, by name, its rounds, examples, last remark and error, and the privacy it says it spent.
    totals : Counter
        Sums over all rounds.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.width: int = max(1, -(-rounds // MOST_POINTS))
        points = -(-rounds // self.width)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.totals: Counter[str] = Counter()
        self._means: dict[str, list[float]] = {name: [0.0] * points for name in _MEANS}
        self._counts: dict[str, list[int]] = {name: [0] * points for name in _MEANS}
        self._values: dict[str, list[int]] = {name: [0] * points for name in ("values_down", "values_up")}
        self._reported: dict[str, int] = {}

    def add(self, entry: dict[str, Any]) -> None:
        """Add the entry of the next round."""
        number, totals = entry["round"], self.totals
        totals["messages"] += len(entry["participants"])
        totals["replies"] += len(entry["accepted"])
        totals["idle"] += not entry["examples"]
        for name in ("bytes_up", "examples", *self._values):
            totals[name] += entry[name]
        for name, values in self._values.items():
            values[(number - 1) // self.width] += entry[name]
        self._note("seconds", number, entry["seconds"])
        for name in ("server_msd", "test_mse"):
            value = entry.get("evaluation", {}).get(name.replace("_", "-"))
            if value is not None:
                self._note(name, number, value)
        for node, metrics in entry["metrics"].items():
            # A node reports on rounds that it has not reported on yet.
            before = self._reported.get(node, 0)
            fresh = {n: e for n, e in _squared_errors(metrics).items() if before < n <= number}
            for n, error in fresh.items():
                self._note("network_mse", n, error)
            self._reported[node] = max([before, *fresh])
        for name in entry["participants"]:
            self._add_node(name, entry)

    def _add_node(self, name: str, entry: dict[str, Any]) -> None:
        about = self.nodes.setdefault(name, {"rounds": 0, "examples": 0, "remark": "", "error": ""})
        is_accepted = name in entry["accepted"]
        about["rounds"] += is_accepted
        about["examples"] += entry["examples_by_node"].get(name, 0)
        about["remark"] = entry["remarks"].get(name, "" if is_accepted else about["remark"])
        about["error"] = entry["reasons"].get(name, about["error"])
        spent = entry["metrics"].get(name, {})
        if "privacy-epsilon" in spent:
            about["privacy"] = {each: spent.get(f"privacy-{each}") for each in ("epsilon", "delta", "uploads")}

    def learning_curve(self) -> dict[str, list[Any]]:
        """Return by round the clients' mean squared a-priori error, and the server's MSD and test MSE after it.

        The network MSE of round n is the mean of e² over all clients that have reported on that round by the end; a
        client left out reports when it is next asked. These are the clients' own reports; a Byzantine client may report
        anything.
        """
        points = len(self._counts["seconds"])
        means = {
            name: [mean if count else None for mean, count in zip(self._means[name], counts, strict=True)]
            for name, counts in self._counts.items()
        }
        return {
            "round": [min((point + 1) * self.width, self.rounds) for point in range(points)],
            **means,
            "clients_reporting": [-(-count // self.width) for count in self._counts["network_mse"]],
            **self._values,
        }

    def _note(self, name: str, number: int, value: float) -> None:
        """Add a value to the mean of a point; values are not negative, so the mean cannot overflow."""
        point, means, counts = (number - 1) // self.width, self._means[name], self._counts[name]
        counts[point] += 1
        means[point] += (value - means[point]) / counts[point]


def _squared_errors(metrics: Mapping[str, Any]) -> dict[int, float]:
    """Return the squared errors that a node reports, by round; it may report anything."""
    values, last = metrics.get("squared-errors"), metrics.get("last-round")
    if not isinstance(values, list) or not isinstance(last, int | float):
        return {}
    numbered = enumerate(reversed(values))
    return {int(last) - back: float(value) for back, value in numbered if value is not None and value >= 0}


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
