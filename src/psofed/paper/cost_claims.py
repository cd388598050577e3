"""The paper's claims on computation, which it gives without numbers: checked by counting operations.

Notes
-----
The paper does not say whose work it means, nor per what. So all readings are cases: the work of the clients, of the
server, of both; in one exchange, and in one iteration of the whole fleet within the same communication budget. The two
differ much, since PSO-Fed's clients learn in every iteration whether they take part or not, while its rivals' clients
work in exchanges only, which are fewer because each sends more.
"""

import math
from collections.abc import Iterator
from typing import Any

from psofed.paper.figures.fig1 import ALGORITHMS
from psofed.paper.model import FigureData
from psofed.paper.verdict import Check, Claim
from psofed.reference.operations import ExchangeCost, count_operations
from psofed.scenario import Scenario
from psofed.scenario.changes import with_values

_OPERATIONS = (
    "operations (sums, products, quotients, comparisons and roots count as one each) in an exchange, counting one "
    "client, or in an iteration of the whole fleet within the same communication budget"
)


def cost_claims(figures: dict[str, FigureData], shown: tuple[str, ...]) -> Iterator[Claim]:
    """Yield the claims on computation, in the setting of figure 1."""
    costs = count_for(figures["fig1"].base)
    ours, online, compressed = (works(costs[name]) for name in ("PSO-Fed", "Online-Fed", "CS-Fed"))
    yield Claim(
        "CS-Fed takes more computation than PSO-Fed", "experiment 1", shown,
        f"CS-Fed takes more {_OPERATIONS}",
        tuple(_compare({"side": side, "unit": unit}, "CS-Fed", compressed[side, unit], ours[side, unit])
              for side, unit in ours),
    )  # fmt: skip
    yield Claim(
        "PSO-Fed asks no more computation of the clients than Online-Fed", "introduction and experiment 2",
        shown, f"PSO-Fed's clients take at most as many {_OPERATIONS}",
        tuple(_compare({"unit": unit}, "Online-Fed", online["clients", unit], ours["clients", unit], strict=False)
              for unit in ("exchange", "iteration")),
    )  # fmt: skip


def count_for(base: Scenario) -> dict[str, ExchangeCost]:
    """Return what each algorithm of figure 1 computes."""
    return {label: count_operations(with_values(base, changes)) for label, changes in ALGORITHMS.items()}


def works(cost: ExchangeCost) -> dict[tuple[str, str], float]:
    """Return operations by side and unit: one participant's and the server's in an exchange, all in an iteration.

    Examples
    --------
    >>> works(count_operations(Scenario(num_clients=50, dimension=5)))["clients", "iteration"]
    1050.0
    """
    taking_part = cost.traffic.group
    found = {
        ("clients", "exchange"): cost.participant.total,
        ("server", "exchange"): cost.server.total,
        ("both", "exchange"): taking_part * cost.participant.total + cost.server.total,
        ("clients", "iteration"): cost.all_clients_per_iteration,
        ("server", "iteration"): cost.server_per_iteration,
    }
    return {**found, ("both", "iteration"): found["clients", "iteration"] + found["server", "iteration"]}


def _compare(case: dict[str, Any], rival: str, theirs: float, ours: float, strict: bool = True) -> Check:
    passed = theirs > ours if strict else theirs >= ours
    return Check(
        case,
        passed,
        f"{rival} {theirs:,g}, PSO-Fed {ours:,g}: {_ratio(theirs, ours)}",
        math.log(theirs / ours),
    )


def _ratio(theirs: float, ours: float) -> str:
    if theirs == ours:
        return "equally many"
    return (
        f"{_rounded(theirs / ours)} times as many"
        if theirs > ours
        else f"{_rounded(ours / theirs)} times fewer"
    )


def _rounded(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 100 else f"{ratio:,.0f}"
