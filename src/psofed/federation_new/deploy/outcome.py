"""Report and chart of a federation's result, with the predictions of theory and simulation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.federation_new.deploy.status import together
from psofed.render import Column, Kind, Measured, Report, Reported, Table
from psofed.render.charts import Chart, Scale, Series
from psofed.render.numbers import count, counted, decibels, percent
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.federation_new.deploy.demo import DemoComparison, RunPrediction

_MOST_ROWS = 25  # of a learning curve; the result has all


@dataclass(frozen=True, eq=False, repr=False)
class FederationOutcome(Reported):
    """The result of a federation as commands show it.

    Attributes
    ----------
    result : dict
        As in ``result.json``.
    prediction : RunPrediction, optional
        Shown beside the run.
    comparison : DemoComparison, optional
        The same streams without the run's protection.
    files : str
        Where its files are, in a sentence.
    """

    result: dict[str, Any]
    prediction: "RunPrediction | None" = None
    comparison: "DemoComparison | None" = None
    files: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the result with the prediction and the comparison, if there are any."""
        return (
            self.result
            | ({} if self.prediction is None else {"prediction": vars(self.prediction)})
            | ({} if self.comparison is None else {"payoff": self.comparison.to_json()})
        )

    def report(self) -> Report:
        """Return the learning curve, the traffic, and which nodes were dropped or are suspect."""
        result, compared = self.result, self.comparison
        scenario = Scenario.from_mapping(result["scenario"])
        tables = (compared and compared.table(), _curve(result, self.prediction))
        return Report(
            _headline(result) if compared is None else compared.headline,
            f"{_members(result, scenario)}, sharing {scenario.num_shared} of {scenario.dimension} parameters.",
            tuple(table for table in tables if table),
            (*_remarks(result), *filter(None, [self.files])),
            None,
            lambda: (self.chart(),),
        )

    def chart(self) -> Chart:
        """Return the clients' errors and the server's deviation by round.

        Predictions are dashed lines, with the range of 90 % of simulated runs shaded.
        """
        return _chart(self.result, self.prediction)


def _chart(result: dict[str, Any], prediction: "RunPrediction | None") -> Chart:
    curve, scenario = result["learning_curve"], Scenario.from_mapping(result["scenario"])
    rounds = np.array(curve["round"], dtype=np.float64)
    series = []
    # The network MSE of one run is a mean of a few squares: points, since a line would suggest a course.
    for colour, (metric, marker, line) in enumerate((("network_mse", "o", ""), ("server_msd", "s", "-"))):
        values = np.array([np.nan if value is None else value for value in curve[metric]])
        if np.isnan(values).all():
            continue
        title = METRIC_TITLES[metric]
        measured = Series(
            f"{title}, one run", rounds, to_decibels(values), line=line, marker=marker, colour=colour
        )
        series.append(measured)
        if prediction is not None:
            expected = to_decibels(np.array(getattr(prediction, metric)))
            series.append(Series(f"{title}, theory", rounds, expected, line="--", colour=colour, width=1.4))
    if prediction is not None:
        low, high = (to_decibels(np.array(ends)) for ends in (prediction.low, prediction.high))
        label = "server MSD, 90 % of simulated runs"
        series.append(Series(label, rounds, (low + high) / 2, low, high, colour=1, width=0.0))
    return Chart(
        f"Federation: {_members(result, scenario)}, sharing {scenario.num_shared} of {scenario.dimension} parameters",
        Scale("round", whole=True),
        Scale("error (dB), lower is better"),
        tuple(series),
    )


def _members(result: dict[str, Any], scenario: Scenario) -> str:
    """Return how many clients took part; only where their data are synthetic is it known how many are Byzantine."""
    clients = counted(sum(entry["rounds"] > 0 for entry in result["nodes"].values()), "client")
    return clients + (
        f", {count(scenario.num_byzantine)} Byzantine" if result["settings"]["synthetic"] else ""
    )


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


def _curve(result: dict[str, Any], prediction: "RunPrediction | None") -> Table | None:
    """Return the errors of the rounds on which clients reported; of many rounds a selection with the last."""
    curve = result["learning_curve"]
    columns = [Column("round", Kind.COUNT), Column(METRIC_TITLES["network_mse"], Kind.LEVEL)]
    values: list[list[Any]] = [curve["round"], curve["network_mse"]]
    has_deviation = any(value is not None for value in curve["server_msd"])
    if prediction is not None:
        columns.append(Column("theory", Kind.LEVEL))
        values.append(list(prediction.network_mse))
    if has_deviation:
        columns.append(Column(METRIC_TITLES["server_msd"], Kind.LEVEL))
        values.append(curve["server_msd"])
    notes: tuple[str, ...] = ()
    if prediction is not None:
        columns.append(Column("theory", Kind.LEVEL))
        ends = zip(prediction.server_msd, prediction.low, prediction.high, strict=True)
        values.append([Measured(middle, low, high) for middle, low, high in ends])
        notes = ("Theory of the server MSD: ± and brackets hold 90 % of simulated runs.",)
    rows = [row for row in zip(*values, strict=True) if any(value is not None for value in row[1:])]
    if not rows:
        return None
    every = -(-len(rows) // _MOST_ROWS)
    return Table("Errors by round", tuple(columns), tuple(rows[(len(rows) - 1) % every :: every]), notes)


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
        lines.append(
            f"Nothing was learned in {idle} of {result['rounds']} rounds because there were no new samples. If the "
            "files are complete already, --samples-per-round spreads them over the rounds."
        )
    return lines
