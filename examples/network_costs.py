"""How much accuracy sleep, delay, few bits and privacy cost: the tables of docs/studies.md.

Run as `python examples/network_costs.py docs/tables`. Every number is computed with two seeds; the last line tells how
often their 95 % intervals contradict each other.
"""

import csv
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from psofed import (
    Data,
    Links,
    Scenario,
    Selection,
    attacks,
    availabilities,
    channels,
    delays,
    difference,
    learners,
    models,
    simulate,
    streams,
)
from psofed.results import SimulationResult
from psofed.results.privacy import gaussian_epsilon
from psofed.results.traffic import measure_communication

SEEDS, TUNING_SEED = (1, 2), 7
BASE = Scenario(num_clients=100, dimension=5, iterations=1000, stepsize=0.15)
# As many values per iteration in both: 30 participants share one parameter, or 6 share all five.
DESIGNS = {"M = 1": {"num_shared": 1, "num_participants": 30}, "M = 5": {"num_shared": 5, "num_participants": 6}}
SITUATIONS: dict[str, dict[str, Any]] = {
    "no attack": {},
    "Gaussian, mean": {"attack": attacks.Gaussian(num_byzantine=30, probability=0.2)},
    "sign flip, median": {"attack": attacks.SignFlip(num_byzantine=20, probability=1.0), "aggregation": "median"},
}
SLEEP = availabilities.Schedule(period=50, share=0.5, learns="available")
LATE = delays.Geometric(ratio=0.8, longest=20)
FOUR_BITS = channels.Quantised(bits=4, reach=1.0)
EPSILON, DELTA = 10.0, 1e-5


class Table:
    """Rows of a CSV file, and how well the two seeds agree."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.compared: int = 0
        self.contradictions: int = 0

    def add(self, names: dict[str, Any], first: list[SimulationResult], second: list[SimulationResult]) -> None:
        """Add the difference between two results (one of each for either seed) in all metrics."""
        row = dict(names)
        for metric in ("network_mse", "server_msd"):
            found = [difference(a, b)[metric] for a, b in zip(first, second, strict=True)]
            row |= {
                f"{metric}_db": f"{found[0].decibels:.2f}",
                f"{metric}_low": f"{found[0].interval[0]:.2f}",
                f"{metric}_high": f"{found[0].interval[1]:.2f}",
                f"{metric}_second_seed_db": f"{found[1].decibels:.2f}",
            }
            self._compare(found)
        self.rows.append(row)

    def _compare(self, found: list[Any]) -> None:
        if not all(math.isfinite(end) for each in found for end in each.interval):
            return
        half = [(each.interval[1] - each.interval[0]) / 2 for each in found]
        self.compared += 1
        self.contradictions += abs(found[0].decibels - found[1].decibels) > math.hypot(*half) + 0.005

    def write(self, path: Path) -> None:
        """Write the rows, and say how often the seeds disagree."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        print(f"{path.name}: {self.contradictions} of {self.compared} differences contradict the second seed")


def run(scenario: Scenario, trials: int = 256) -> list[SimulationResult]:
    """Simulate with both seeds."""
    return [simulate(scenario, trials=trials, seed=seed) for seed in SEEDS]


def multiplier_of(uploads: int) -> float:
    """Return the noise multiplier at which that number of uploads spends EPSILON, by bisection."""
    low, high = 0.01, 1000.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gaussian_epsilon(middle, uploads, DELTA) > EPSILON else (low, middle)
    return high


def most_uploads(scenario: Scenario) -> int:
    """Return how often a client uploads at most; that depends on the participants alone."""
    once = scenario.replace(channel=Links(up=channels.Private(clip=1.0)))
    return max(result.details["privacy"]["uploads"] for result in run(once))


def best(scenarios: Iterable[Scenario]) -> Scenario:
    """Return the scenario of the lowest network MSE, on a seed that is not used afterwards."""
    return min(scenarios, key=lambda each: simulate(each, trials=32, seed=TUNING_SEED).network_mse.mean)


def network_conditions(scenario: Scenario) -> dict[str, Scenario]:
    """Return the scenario on every kind of network."""
    private = best(
        scenario.replace(channel=Links(up=channels.Private(clip=clip, multiplier=noise, delta=DELTA)))
        for noise in [multiplier_of(most_uploads(scenario))]
        for clip in (0.0003, 0.001, 0.003, 0.01, 0.03)
    )
    four = Links(up=FOUR_BITS, down=FOUR_BITS)
    return {
        "sleeps half of the time": scenario.replace(availability=SLEEP),
        "sleeps, and the server does not know": scenario.replace(availability=SLEEP.replace(server_knows=False)),
        "uploads are late": scenario.replace(delay=LATE),
        "uploads are late, weighted": scenario.replace(delay=LATE.replace(weight=0.8)),
        "8 bits": scenario.replace(channel=Links(up=FOUR_BITS.replace(bits=8), down=FOUR_BITS.replace(bits=8))),
        "4 bits": scenario.replace(channel=four),
        "sleep, late and 4 bits": scenario.replace(availability=SLEEP, delay=LATE, channel=four),
        f"private, epsilon = {EPSILON:g}": private,
    }


def tabulate_network(folder: Path) -> None:
    """Tabulate what each kind of network costs, relative to a perfect one."""
    table = Table()
    for situation, changes in SITUATIONS.items():
        perfect = {name: run(BASE.replace(**design, **changes)) for name, design in DESIGNS.items()}
        table.add(
            {"situation": situation, "network": "perfect", "compared": "M = 5 less M = 1"},
            *reversed(list(perfect.values())),
        )
        for name, design in DESIGNS.items():
            for network, scenario in network_conditions(BASE.replace(**design, **changes)).items():
                worse = run(scenario)
                spent = worse[0].details.get("privacy", {}).get("epsilon", "")
                if spent:
                    clip = scenario.channel.up[0].clip  # type: ignore[union-attr]
                    print(f"{situation}, {name}: clip {clip}, epsilon {spent:.2f}")
                table.add({"situation": situation, "network": network, "compared": name}, worse, perfect[name])
    table.write(folder / "costs_network.csv")


def tabulate_pao(folder: Path) -> None:
    """Judge PAO-Fed's claim: the same convergence with 98 % less traffic."""
    shares = [(0.25, 0.1, 0.025, 0.005)[k % 4] for k in range(128)]
    full = Scenario(
        num_clients=128, dimension=100, iterations=2000, stepsize=0.4, num_participants=128, num_shared=100,
        model=models.Rff(features=100), data=Data(function="root-sine"),
        availability=availabilities.Bernoulli(probability=shares),
        delay=delays.Geometric(ratio=0.2, longest=10, weight=0.2, grouping="by-delay"),
        selection=Selection(coordinated=False),
    )  # fmt: skip
    partial = full.replace(num_shared=2)
    attack = attacks.Gaussian(num_byzantine=26, probability=0.2)
    cases = {
        "full sharing, asynchronous": full,
        "full sharing, synchronous": full.replace(availability=None, delay=None),
        "PAO-Fed": partial,
        "PAO-Fed, one mask for all": partial.replace(selection=Selection(coordinated=True)),
        "PAO-Fed, delays not weighted": partial.replace(delay=full.delay.replace(weight=1.0)),  # type: ignore[union-attr]
        "full sharing, one client asked": full.replace(num_participants=1),
        "full sharing, attacked": full.replace(attack=attack),
        "PAO-Fed, attacked": partial.replace(attack=attack),
    }
    results = {name: run(scenario, trials=16) for name, scenario in cases.items()}
    first = results["full sharing, asynchronous"]
    rows, contradictions = [], 0
    for name, found in results.items():
        gaps = [difference(a, b).test_mse for a, b in zip(found, first, strict=True)]
        half = [(gap.interval[1] - gap.interval[0]) / 2 for gap in gaps]
        contradictions += abs(gaps[0].decibels - gaps[1].decibels) > math.hypot(*half) + 0.005
        curve = found[0].curve["test_mse"]
        level = 10**0.1 * first[0].test_mse.mean
        reached = next((n for n, value in enumerate(curve) if value <= level), None)
        values = measure_communication(cases[name]).numbers_up
        rows.append(
            {
                "variant": name,
                "values_up_per_iteration": f"{values:.0f}",
                "test_mse_db": f"{found[0].test_mse.decibels:.2f}",
                "db_above_full_sharing": f"{gaps[0].decibels:.2f}",
                "low": f"{gaps[0].interval[0]:.2f}",
                "high": f"{gaps[0].interval[1]:.2f}",
                "second_seed_db": f"{gaps[1].decibels:.2f}",
                "iterations_to_within_1_db": "" if reached is None else reached,
            }
        )
    with (folder / "costs_pao_fed.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"costs_pao_fed.csv: {contradictions} of {len(rows)} differences contradict the second seed")


def tabulate_learners(folder: Path) -> None:
    """Compare NLMS and RLS with LMS, each with its best stepsize or forgetting."""
    table = Table()
    situations = {**SITUATIONS, "sign flip, mean": {"attack": attacks.SignFlip(num_byzantine=20, probability=1.0)}}
    for situation, changes in situations.items():
        for name, design in DESIGNS.items():
            scenario = BASE.replace(**design, **changes)
            steps = (0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3)
            lms = best(scenario.replace(stepsize=mu) for mu in steps)
            nlms = best(scenario.replace(learner=learners.NLMS(), stepsize=mu) for mu in (*steps, 0.5, 0.8))
            rls = best(
                scenario.replace(learner=learners.RLS(forgetting=1 - rest))
                for rest in (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
            )
            reference = run(lms)
            for kind, chosen, setting in (
                ("nlms", nlms, nlms.stepsize),
                ("rls", rls, rls.learner.forgetting),  # type: ignore[attr-defined]
            ):
                names = {
                    "situation": situation, "compared": name, "learner": kind, "setting": setting,
                    "lms_stepsize": lms.stepsize, "lms_network_mse_db": f"{reference[0].network_mse.decibels:.2f}",
                }  # fmt: skip
                table.add(names, run(chosen), reference)
    table.write(folder / "costs_learners.csv")


def tabulate_streams(folder: Path) -> None:
    """Compare a delay line with inputs of the same covariance that are independent over time."""
    table = Table()
    for dimension, stepsizes in ((5, (0.03, 0.2)), (20, (0.01, 0.03))):
        for mu in stepsizes:
            for pole in (0.0, 0.5, 0.9):
                for shared in (1, dimension):
                    scenario = BASE.replace(
                        dimension=dimension, stepsize=mu, num_shared=shared, iterations=2000,
                        num_participants=30 if shared == 1 else 6,
                    )  # fmt: skip
                    line = scenario.replace(data=Data(stream=streams.DelayLine(pole=pole)))
                    names = {"dimension": dimension, "stepsize": mu, "pole": pole, "num_shared": shared}
                    independent = scenario.replace(data=Data(input_correlation=pole))
                    table.add(names, run(line, 128), run(independent, 128))
    table.write(folder / "costs_streams.csv")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    wanted = sys.argv[2:] or ["network", "pao", "learners", "streams"]
    for each in wanted:
        {"network": tabulate_network, "pao": tabulate_pao, "learners": tabulate_learners, "streams": tabulate_streams}[
            each
        ](target)
