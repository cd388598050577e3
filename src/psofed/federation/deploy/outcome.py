"""Report and chart of a federation's result."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.federation.deploy.status import together
from psofed.render import Column, Kind, Report, Reported, Table
from psofed.render.charts import Chart, Scale, Series
from psofed.render.numbers import count, counted, decibels, percent
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.federation.deploy.demo import DemoComparison

_MOST_ROWS = 25  # of a learning curve; the result has all


@dataclass(frozen=True, eq=False, repr=False)
class FederationOutcome(Reported):
    """The result of a federation as commands show it.

    Attributes
    ----------
    result : dict
        As in ``result.json``.
    comparison : DemoComparison, optional
        The same streams without the run's protection.
    files : str
        Where its files are, in a sentence.
    """

    result: dict[str, Any]
    comparison: "DemoComparison | None" = None
    files: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result with the comparison, if there is one."""
        return self.result | ({} if self.comparison is None else {"payoff": self.comparison.to_json()})

    def report(self) -> Report:
        """Return the learning curve or the comparison, the traffic, and which nodes were dropped or are suspect."""
        result, compared = self.result, self.comparison
        scenario = Scenario.from_mapping(result["scenario"])
        table = _curve(result) if compared is None else compared.table()
        return Report(
            _headline(result) if compared is None else compared.headline,
            f"{_members(result, scenario)}, sharing {scenario.num_shared} of {scenario.dimension} parameters.",
            () if table is None else (table,),
            (*_remarks(result), *filter(None, [self.files])),
            None,
            lambda: (self.chart(),),
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
