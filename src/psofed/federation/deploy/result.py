"""Result of a federation: curves, bytes and bad replies, as JSON, and as a report with a chart."""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed._version import __version__
from psofed.common.numbers import to_decibels
from psofed.federation.deploy.status import together
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.checks import mean_without_overflow
from psofed.federation.server.clients import Strikes
from psofed.render import Column, Kind, Report, Reported, Table
from psofed.render.charts import Chart, Scale, Series
from psofed.render.numbers import count, counted, decibels, percent
from psofed.results.metrics import METRIC_TITLES
from psofed.scenario import Scenario

MOST_POINTS = 10_000  # of a learning curve; more rounds are averaged, as in a simulation
_MOST_ROWS = 25  # of a table; the result has all
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
        self._means: dict[str, list[float | None]] = {name: [None] * points for name in _MEANS}
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
        return {
            "round": [min((point + 1) * self.width, self.rounds) for point in range(len(self._means["seconds"]))],
            **self._means,
            "clients_reporting": [-(-count // self.width) for count in self._counts["network_mse"]],
            **self._values,
        }

    def _note(self, name: str, number: int, value: float) -> None:
        """Add a value to the mean of a point; values are not negative, so the mean cannot overflow."""
        point, means, counts = (number - 1) // self.width, self._means[name], self._counts[name]
        counts[point] += 1
        mean = means[point] or 0.0
        means[point] = mean + (value - mean) / counts[point]


def _squared_errors(metrics: Mapping[str, Any]) -> dict[int, float]:
    """Return the squared errors that a node reports, by round; it may report anything."""
    values, last = metrics.get("squared-errors"), metrics.get("last-round")
    if not isinstance(values, list) or not isinstance(last, int | float):
        return {}
    numbered = enumerate(reversed(values))
    return {int(last) - back: float(value) for back, value in numbered if value is not None and value >= 0}


@dataclass(frozen=True, eq=False, repr=False)
class FederationOutcome(Reported):
    """The result of a federation as commands show it.

    Attributes
    ----------
    result : dict
        As in ``result.json``; that of a demo has ``payoff``, too.
    files : str
        Where its files are, in a sentence.
    """

    result: dict[str, Any]
    files: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result."""
        return self.result

    def report(self) -> Report:
        """Return the learning curve, the traffic, and which nodes were dropped or are suspect."""
        result = self.result
        scenario = Scenario.from_mapping(result["scenario"])
        table = _curve(result)
        return Report(
            _headline(result),
            f"{_members(result, scenario)}, sharing {scenario.num_shared} of {scenario.dimension} parameters.",
            () if table is None else (table,),
            (*_remarks(result), *filter(None, [self.files])),
            None,
            self.chart,
        )

    def chart(self) -> Chart:
        """Return the clients' errors and the server's deviation by round."""
        curve, scenario = self.result["learning_curve"], Scenario.from_mapping(self.result["scenario"])
        rounds, series = np.array(curve["round"], dtype=np.float64), []
        # The network MSE of one run is a mean of a few squares: points, since a line would suggest a course.
        for colour, (metric, marker, line) in enumerate((("network_mse", "o", ""), ("server_msd", "s", "-"))):
            values = np.array([np.nan if value is None else value for value in curve[metric]])
            if not np.isnan(values).all():
                label, levels = f"{METRIC_TITLES[metric]}, one run", to_decibels(values)
                series.append(Series(label, rounds, levels, line=line, marker=marker, colour=colour))
        shared = f"sharing {scenario.num_shared} of {scenario.dimension} parameters"
        return Chart(
            f"Federation: {_members(self.result, scenario)}, {shared}",
            Scale("round", whole=True),
            Scale("error (dB), lower is better"),
            tuple(series),
        )


def _members(result: dict[str, Any], scenario: Scenario) -> str:
    """Return how many clients took part; only where their data are synthetic is it known how many are Byzantine."""
    clients = counted(sum(entry["rounds"] > 0 for entry in result["nodes"].values()), "client")
    return clients + (f", {count(scenario.num_byzantine)} Byzantine" if result["settings"]["synthetic"] else "")


def _headline(result: dict[str, Any]) -> str:
    rounds, curve = result["rounds"], result["learning_curve"]
    if (payoff := result.get("payoff")) is not None:
        protected, unprotected = (decibels(payoff[name], 1) for name in ("protected", "unprotected"))
        return f"Over the last quarter, the server MSD is {protected}; without protection, {unprotected}."
    if not result["examples"]:
        return f"Nothing was learned in {counted(rounds, 'round')}: no reply with a sample was accepted."
    for metric in ("server_msd", "network_mse"):
        known = [value for value in curve[metric] if value is not None]
        if known:
            level = f"the {METRIC_TITLES[metric]} is {decibels(known[-1])} (lower is better)"
            return f"After {counted(rounds, 'round')} with {counted(result['examples'], 'sample')}, {level}."
    return f"The federation ran for {counted(rounds, 'round')} with {counted(result['examples'], 'sample')}."


def _curve(result: dict[str, Any]) -> Table | None:
    """Return the errors of the rounds on which clients reported; of many rounds a selection with the last."""
    curve = result["learning_curve"]
    metrics = [name for name in ("network_mse", "server_msd") if any(value is not None for value in curve[name])]
    rows = [
        row
        for row in zip(curve["round"], *(curve[name] for name in metrics), strict=True)
        if any(value is not None for value in row[1:])
    ]
    if not rows:
        return None
    columns = [Column("round", Kind.COUNT), *(Column(METRIC_TITLES[name], Kind.LEVEL) for name in metrics)]
    every = -(-len(rows) // _MOST_ROWS)
    return Table("Errors by round", tuple(columns), tuple(rows[(len(rows) - 1) % every :: every]))


def _remarks(result: dict[str, Any]) -> list[str]:
    traffic = result["communication"]
    share = traffic["fraction_of_full_sharing"]
    lines = [
        f"Values sent: {count(traffic['values_down'])} down and {count(traffic['values_up'])} up"
        + (f", {percent(share)} of full sharing." if share is not None else ".")
    ]
    nodes = result["nodes"].items()
    lines += together({node: entry["remark"] for node, entry in nodes})
    lines += together({node: entry["error"] for node, entry in nodes}, "last reply dropped because ")
    kinds = {
        node: ", ".join(f"{number} {kind}" for kind, number in counts.items())
        for node, counts in result["bad_replies"].items()
    }
    lines += [f"Replies dropped from {line}." for line in together(kinds)]
    for node, about in result.get("suspects", {}).items():
        state = "excluded" if about["out"] else "readmitted"
        lines.append(f"Suspect: {node}, first in round {about['first_round']}, {state} at the end.")
    idle = result["idle_rounds"]
    if 2 * idle > result["rounds"] > 1 and result["examples"]:
        advice = " If the files were complete already, --samples-per-round spreads them over the rounds."
        is_spread = result["settings"].get("samples_per_round")
        lines.append(f"Nothing was learned in {idle} of {result['rounds']} rounds.{'' if is_spread else advice}")
    return lines
