"""What each aggregation rule costs in the engine: time of a simulation, with that under the mean as 1."""

import time

from benchmarks._timing import best_seconds, markdown_table
from psofed import Scenario, simulate
from psofed.parts.attacks import Gaussian
from psofed.parts.registry import part_names

BASE = Scenario(
    num_clients=50, dimension=5, num_participants=5, iterations=1000, attack=Gaussian(num_byzantine=15)
)


def run() -> str:
    """Return a table of CPU times relative to the mean, for M = 1 and M = 5, on one thread."""
    rules = part_names("aggregation")
    ratios = {}
    for shared in (1, 5):
        scenarios = {rule: BASE.replace(num_shared=shared, aggregation=rule) for rule in rules}
        contenders = {
            rule: lambda scenario=scenario: simulate(scenario, 16, threads=1)
            for rule, scenario in scenarios.items()
        }
        seconds = best_seconds(contenders, rounds=15, clock=time.process_time)
        ratios[shared] = {rule: seconds[rule] / seconds["mean"] for rule in rules}
    rows = [[f"`{rule}`", *(f"{ratios[shared][rule]:.2f}" for shared in (1, 5))] for rule in rules]
    return markdown_table(["time, mean = 1", "M = 1", "M = 5"], rows)
