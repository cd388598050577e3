"""What each aggregation rule costs in the engine: time of a simulation, with that under the mean as 1."""

import time

from benchmarks._timing import best_seconds, markdown_table
from psofed import Scenario, simulate
from psofed.parts.attacks import Gaussian
from psofed.parts.registry import part_names

BASE = Scenario(num_clients=50, dimension=5, num_participants=6, iterations=1000, attack=Gaussian(num_byzantine=15))
# K and M. The fewer clients there are, the less time all else takes.
CASES = ((50, 1), (100, 1), (100, 5))


def run() -> str:
    """Return a table of CPU times relative to the mean, on one thread."""
    rules = part_names("aggregation")
    ratios = {}
    for case in CASES:
        base = BASE.replace(num_clients=case[0], num_shared=case[1])
        scenarios = {rule: base.replace(aggregation=rule) for rule in rules}
        contenders = {
            rule: lambda scenario=scenario: simulate(scenario, 16, threads=1) for rule, scenario in scenarios.items()
        }
        seconds = best_seconds(contenders, rounds=15, clock=time.process_time)
        ratios[case] = {rule: seconds[rule] / seconds["mean"] for rule in rules}
    rows = [[f"`{rule}`", *(f"{ratios[case][rule]:.2f}" for case in CASES)] for rule in rules]
    return markdown_table(["time, mean = 1", *(f"K = {k}, M = {m}" for k, m in CASES)], rows)
