"""What each algorithm costs: operations counted in a plain run, time in the engine, bytes."""

import time

from benchmarks._timing import best_seconds, markdown_table
from psofed import simulate
from psofed.paper.cost_claims import count_for
from psofed.paper.figures.fig1 import ALGORITHMS, FIGURE
from psofed.scenario.changes import with_values

# All clients take part in every iteration and there is an exchange in each, so that time is the exchange's.
TRIALS, TIMED = 32, {"num_clients": 5, "num_shared": 5, "iterations": 400}


def run() -> str:
    """Return a table: operations of one participant, of the server, of all in an iteration; time; bytes."""
    costs = count_for(FIGURE.base)
    timed = {label: with_values(FIGURE.base, {**changes, **TIMED}) for label, changes in ALGORITHMS.items()}
    contenders = {
        label: lambda scenario=scenario: simulate(scenario, TRIALS, threads=1)
        for label, scenario in timed.items()
    }
    seconds = best_seconds(contenders, rounds=7, clock=time.process_time)
    rows = []
    for label, cost in costs.items():
        updates = TRIALS * 5 * timed[label].iterations
        rows.append([
            label, f"{cost.participant.total:,}", f"{cost.shared_draws + cost.own_draws:,}", f"{cost.server.total:,}",
            f"{cost.all_clients_per_iteration:,.0f}", f"{cost.server_per_iteration:,.0f}",
            f"{1e9 * seconds[label] / updates:,.0f}", f"{seconds[label] / seconds['PSO-Fed']:.2f}",
            f"{cost.traffic.bits_up / 8:g} / {cost.traffic.bits_down / 8:g}",
        ])  # fmt: skip
    headings = [
        "", "participant", "draws", "server", "clients, iteration", "server, iteration", "ns", "PSO-Fed = 1",
        "bytes up / down",
    ]  # fmt: skip
    return markdown_table(headings, rows)
