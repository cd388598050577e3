"""All rounds of a run in one pass over its history, in memory that does not grow with their number."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from psofed.federation.server.checkpoint import ServerState

MOST_POINTS = 10_000  # of a learning curve; more rounds are averaged, as in a simulation

_MEANS = ("network_mse", "server_msd", "test_mse", "seconds")


class RunSummary:
    """Learning curve, traffic and nodes of a run, gathered round by round.

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
        self._values: dict[str, list[int]] = {way: [0] * points for way in ("down", "up")}
        self._reported: dict[str, int] = {}

    def add(self, record: dict[str, Any]) -> None:
        """Add the entry of the next round."""
        number, totals = record["round"], self.totals
        totals["messages"] += len(record["participants"])
        totals["replies"] += len(record["accepted"])
        totals["bytes_up"] += record["bytes_up"]
        totals["examples"] += record["examples"]
        totals["idle"] += not record["examples"]
        for way, values in self._values.items():
            totals[way] += record[f"values_{way}"]
            values[self._point(number)] += record[f"values_{way}"]
        self._note("seconds", number, record["seconds"])
        for name in ("server_msd", "test_mse"):
            value = record.get("evaluation", {}).get(name.replace("_", "-"))
            if value is not None:
                self._note(name, number, value)
        for node, metrics in record["metrics"].items():
            self._add_errors(node, number, squared_errors(metrics))
        self._add_nodes(record)

    def _add_errors(self, node: str, number: int, errors: Mapping[int, float]) -> None:
        """Add what a node reports on rounds that it has not reported on yet."""
        before = self._reported.get(node, 0)
        fresh = {n: value for n, value in errors.items() if before < n <= number}
        for n, value in fresh.items():
            self._note("network_mse", n, value)
        self._reported[node] = max([before, *fresh])

    def _add_nodes(self, record: dict[str, Any]) -> None:
        for name in record["participants"]:
            entry = self.nodes.setdefault(name, {"rounds": 0, "examples": 0, "remark": "", "error": ""})
            entry["rounds"] += name in record["accepted"]
            entry["examples"] += record["examples_by_node"].get(name, 0)
            entry["remark"] = record["remarks"].get(
                name, "" if name in record["accepted"] else entry["remark"]
            )
            entry["error"] = record["reasons"].get(name, entry["error"])
            spent = record["metrics"].get(name, {})
            if "privacy-epsilon" in spent:
                entry["privacy"] = {
                    each: spent.get(f"privacy-{each}") for each in ("epsilon", "delta", "uploads")
                }

    def learning_curve(self) -> dict[str, list[Any]]:
        """Return by round the clients' mean squared a-priori error, and the server's MSD and test MSE after it.

        The network MSE of round n is the mean of e² over all clients that have reported on that round by the end; a
        client left out reports when it is next asked. These are the clients' own reports; a Byzantine client may report
        anything.
        """
        last = [min((point + 1) * self.width, self.rounds) for point in range(len(self._values["up"]))]
        means = {
            name: [mean if count else None for mean, count in zip(self._means[name], counts, strict=True)]
            for name, counts in self._counts.items()
        }
        return {
            "round": last,
            **means,
            "clients_reporting": [-(-count // self.width) for count in self._counts["network_mse"]],
            "values_down": self._values["down"],
            "values_up": self._values["up"],
        }

    def communication(self, state: ServerState) -> dict[str, Any]:
        """Return values and bytes of models exchanged, against full sharing."""
        totals, item = self.totals, state.layout.dtype.itemsize
        full = (totals["messages"] + totals["replies"]) * state.layout.dimension
        return {
            "messages_down": totals["messages"],
            "messages_up": totals["replies"],
            "values_down": totals["down"],
            "values_up": totals["up"],
            "payload_bytes_down": totals["down"] * item,
            "payload_bytes_up": totals["bytes_up"],
            "full_sharing_payload_bytes": full * item,
            "fraction_of_full_sharing": (totals["down"] + totals["up"]) / full if full else None,
        }

    def _point(self, number: int) -> int:
        return (number - 1) // self.width

    def _note(self, name: str, number: int, value: float) -> None:
        """Add a value to the mean of a point; values are not negative, so the mean cannot overflow."""
        point = self._point(number)
        self._counts[name][point] += 1
        self._means[name][point] += (value - self._means[name][point]) / self._counts[name][point]


def squared_errors(metrics: Mapping[str, Any]) -> dict[int, float]:
    """Return the squared errors that a node reports, by round; it may report anything."""
    values, last = metrics.get("squared-errors"), metrics.get("last-round")
    if not isinstance(values, list) or not isinstance(last, int | float):
        return {}
    numbered = enumerate(reversed(values))
    return {int(last) - back: float(value) for back, value in numbered if value is not None and value >= 0}
