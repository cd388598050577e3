"""Measures the defence: which Byzantine clients are found, how fast and at what cost.

``python -m benchmarks.defence --out docs/tables`` writes the tables of ``docs/defence.md`` as CSV files (ten minutes
on two cores; ``--quick`` for a look). Every number is seeded.
"""

import argparse
import csv
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import psofed
from psofed import Attack, Scenario, Selection, simulate
from psofed.parts.attacks import (
    ColludingGaussian,
    ConstantBias,
    DataPoisoning,
    Gaussian,
    InnerProduct,
    LabelPoisoning,
    LittleIsEnough,
    Mimic,
    NonFinite,
    ScaledUpdate,
    SignFlip,
)
from psofed.parts.contexts import Upload
from psofed.parts.defences import Cusum
from psofed.theory.residuals import honest_variance

PAPER = Scenario(num_clients=50, dimension=5)
BYZANTINE = {"num_byzantine": 15}
ATTACKS = {
    "Gaussian, variance 0.5": Gaussian(**BYZANTINE),
    "Gaussian, variance 0.5, always": Gaussian(**BYZANTINE, probability=1.0),
    "Gaussian, variance 0.01": Gaussian(**BYZANTINE, variance=0.01),
    "colluding Gaussian": ColludingGaussian(**BYZANTINE),
    "bias 0.5": ConstantBias(**BYZANTINE),
    "bias 0.1, always": ConstantBias(**BYZANTINE, bias=0.1, probability=1.0),
    "sign flip of the update, always": SignFlip(**BYZANTINE, probability=1.0, of="update"),
    "sign flip of the model, always": SignFlip(**BYZANTINE, probability=1.0),
    "update times 10, always": ScaledUpdate(**BYZANTINE, probability=1.0),
    "inner product 2, always": InnerProduct(**BYZANTINE, probability=1.0),
    "little is enough, always": LittleIsEnough(**BYZANTINE, probability=1.0),
    "little is enough, omniscient 1.5, always": LittleIsEnough(
        **BYZANTINE, probability=1.0, deviations=1.5, statistics="honest"
    ),
    "mimic of one victim, always": Mimic(**BYZANTINE, probability=1.0),
    "labels times -1": LabelPoisoning(**BYZANTINE),
    "noise of 0.5 on inputs": DataPoisoning(**BYZANTINE),
    "not finite": NonFinite(**BYZANTINE),
}


class LateNoise(Attack):
    """Noise of variance 0.01 from iteration 500 on."""

    def corrupt(self, upload: Upload) -> float:
        """Add it."""
        return upload.value + 0.1 * upload.normal if upload.iteration >= 500 else upload.value


Row = dict[str, int | float | str]

SIZES, RULES = (1, 5), ("mean", "median", "krum")
TRIALS, ITERATIONS = 64, 3000


def main() -> None:
    """Measure, print the rows, and write them as CSV files if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials")
    parser.add_argument("--only", default="", help="one table")
    parser.add_argument("--out", type=Path, help="folder for the CSV files")
    arguments = parser.parse_args()
    trials = 16 if arguments.quick else TRIALS
    for name, measure in (
        ("false_alarms", measure_false_alarms),
        ("past", measure_past),
        ("attacks", measure_attacks),
        ("settings", measure_settings),
        ("stealth", measure_stealth),
    ):
        if arguments.only not in ("", name):
            continue
        rows = []
        for row in measure(trials):
            print(name, *row.values(), sep=" | ", flush=True)
            rows.append(row)
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            with (arguments.out / f"defence_{name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def measure_false_alarms(trials: int) -> Iterator[Row]:
    """Count the false alarms of honest fleets, and compare with what is promised."""
    fleets = {
        "M = 1": PAPER,
        "M = 5": PAPER.replace(num_shared=5),
        "M = 1, estimated": PAPER.replace(defence=Cusum(variance="estimated")),
        "M = 5, estimated": PAPER.replace(num_shared=5, defence=Cusum(variance="estimated")),
        "M = 1, past": PAPER.replace(defence=Cusum(variance="past")),
        "M = 5, past": PAPER.replace(num_shared=5, defence=Cusum(variance="past")),
        "M = 1, a mask each": PAPER.replace(selection=Selection(coordinated=False)),
        "M = 2, round-robin": PAPER.replace(num_shared=2, selection=Selection(pattern="round-robin")),
        "M = 1, uplink redrawn": PAPER.replace(uplink="redrawn"),
        "M = 5, stepsize 0.03": PAPER.replace(num_shared=5, stepsize=0.03),
        "M = 1, median": PAPER.replace(aggregation="median"),
        "M = 5, Krum": PAPER.replace(num_shared=5, aggregation="krum"),
        "M = 1, targets of their own": PAPER.replace(data=psofed.Data(target_spread=1e-3)),
        "online-fed": PAPER.replace(algorithm="online-fed"),
        "M = 1, one in 1,000": PAPER.replace(defence=Cusum(false_alarm_every=1e3)),
        "M = 1, one in 100,000": PAPER.replace(defence=Cusum(false_alarm_every=1e5)),
    }
    for name, scenario in fleets.items():
        defence = scenario.defence or Cusum()
        assert isinstance(defence, Cusum)
        record = simulate(scenario.replace(defence=defence), trials=4 * trials, seed=1).defence
        assert record is not None
        yield {
            "honest fleet": name,
            "promised: one in": round(defence.false_alarm_every),
            "counted: one in": _whole(record.iterations_per_false_alarm),
            "false alarms": int(record.false_alarms.sum()),
            "threshold": round(record.threshold, 1),
            "variance": record.variance,
        }


def measure_past(trials: int) -> Iterator[Row]:
    """Compare variances over the fleet's level with those by each client's past, which a federation uses."""
    always: dict[str, Any] = {"probability": 1.0}
    for stepsize, clients in product((0.1, 0.02), (5, 10)):
        fleet = PAPER.replace(
            num_clients=clients, num_participants=clients, num_shared=2, stepsize=stepsize, iterations=2000
        )
        third, quiet = (1, 2) if clients == 5 else (3, 4)
        attacks: dict[str, Attack | None] = {
            "none": None,
            f"{quiet} echo the server": ScaledUpdate(num_byzantine=quiet, scale=0.0, **always),
            f"{third} noise 0.25": Gaussian(num_byzantine=third, variance=0.25, **always),
            f"{third} noise 0.01": Gaussian(num_byzantine=third, variance=0.01, **always),
            f"{third} noise 0.01 from 500": LateNoise(num_byzantine=third, **always),
            f"{third} bias 0.1": ConstantBias(num_byzantine=third, bias=0.1, **always),
        }
        for name, attack in attacks.items():
            for variance in ("estimated", "past"):
                scenario = fleet.replace(attack=attack, defence=Cusum(variance=variance))
                result = simulate(scenario, trials=trials, seed=1)
                record = result.defence
                assert record is not None
                yield {
                    "stepsize": stepsize,
                    "clients": clients,
                    "attack": name,
                    "variance": variance,
                    "threshold": round(record.threshold, 1),
                    "honest time out, %": _percent(record.honest_time_out, 1),
                    "one false alarm in": _whole(record.iterations_per_false_alarm),
                    "found, %": "" if attack is None else _percent(record.found, 0),
                    "half found by": "" if attack is None else _whole(record.median_delay),
                    "Byzantine time out, %": "" if attack is None else _percent(record.byzantine_time_out, 1),
                    "network MSE, dB": f"{result.network_mse.decibels:.1f}",
                }


def measure_attacks(trials: int) -> Iterator[Row]:
    """Measure every attack against every rule and number of shared parameters, with and without a defence."""
    for rule in RULES:
        for name, attack in ATTACKS.items():
            for shared in SIZES:
                scenario = PAPER.replace(num_shared=shared, aggregation=rule)
                attacked = scenario.replace(attack=attack)
                yield {
                    "rule": rule,
                    "attack": name,
                    "M": shared,
                    "no attack, dB": _decibels(scenario, trials)[0],
                    "attacked, dB": _decibels(attacked, trials)[0],
                    **_defended(attacked.replace(defence=Cusum()), trials),
                }


def measure_settings(trials: int) -> Iterator[Row]:
    """Measure the effect of each setting on the paper's attack, a weak one and a bias."""
    settings = {
        "default": Cusum(),
        "compared with the server": Cusum(reference="server"),
        "variance estimated": Cusum(variance="estimated"),
        "no shift": Cusum(shift=0.0),
        "one false alarm in 1,000": Cusum(false_alarm_every=1e3),
        "excluded clients do not download": Cusum(excluded_download=False),
        "readmitted after 20 uploads": Cusum(return_after=20),
        "never readmitted": Cusum(return_after=0),
    }
    for name, defence in settings.items():
        for shared in SIZES:
            for which in ("Gaussian, variance 0.5", "Gaussian, variance 0.01", "bias 0.1, always"):
                scenario = PAPER.replace(num_shared=shared, attack=ATTACKS[which], defence=defence)
                yield {"setting": name, "M": shared, "attack": which, **_defended(scenario, trials)}


def measure_stealth(trials: int) -> Iterator[Row]:
    """Find the largest damage that undetected Byzantine clients can do: by theory, and simulated."""
    defence = Cusum()
    for shared in SIZES:
        scenario = PAPER.replace(num_shared=shared)
        variance = float(honest_variance(scenario)[-1].mean())
        most = defence.ratio * math.log(defence.ratio) / (defence.ratio - 1.0) - 1.0
        shift = 0.5 * defence.shift
        attacks = {
            f"noise, {most:.2f} honest variances": Gaussian(**BYZANTINE, probability=1.0, variance=most * variance),
            f"bias, {shift:g} honest deviations": ConstantBias(
                **BYZANTINE, probability=1.0, bias=shift * math.sqrt(variance)
            ),
        }
        for name, attack in attacks.items():
            attacked = scenario.replace(attack=attack)
            level, result = _decibels(attacked.replace(defence=defence), trials)
            yield {
                "M": shared,
                "stealthy attack": name,
                "no attack, dB": _decibels(scenario, trials)[0],
                "theory, dB": round(10 * math.log10(psofed.predict(attacked).network_mse), 2),
                "simulated, dB": _decibels(attacked, trials)[0],
                "defended, dB": level,
                "Byzantine time out, %": round(100 * result.defence.byzantine_time_out, 1),
            }


def _defended(scenario: Scenario, trials: int) -> Row:
    level, result = _decibels(scenario, trials)
    record = result.defence
    return {
        "defended, dB": level,
        "found, %": round(100 * record.found),
        "half found by": _whole(record.median_delay),
        "Byzantine time out, %": round(100 * record.byzantine_time_out, 1),
        "honest time out, %": round(100 * record.honest_time_out, 2),
        "one false alarm in": _whole(record.iterations_per_false_alarm),
    }


def _percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f}"


def _whole(number: float) -> int | str:
    return round(number) if math.isfinite(number) else "never"


def _decibels(scenario: Scenario, trials: int) -> tuple[float, Any]:
    result = simulate(scenario.replace(iterations=ITERATIONS), trials=trials, seed=0)
    levels = result.steady_state["network_mse"]
    return round(float(10 * np.log10(np.median(levels))), 2), result


if __name__ == "__main__":
    main()
