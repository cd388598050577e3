"""Measures the defence: who is found, how fast, at what cost; prints the tables of ``docs/defence.md``.

``python -m benchmarks.defence`` (about ten minutes on two cores; ``--quick`` for a look). Every number is seeded.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import psofed
from psofed import Scenario, Selection, simulate
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
from psofed.parts.defences import Cusum
from psofed.theory.residuals import honest_variance

PAPER = Scenario(num_clients=50, dimension=5)
LIARS = {"num_byzantine": 15}
ATTACKS = {
    "Gaussian, variance 0.5": Gaussian(**LIARS),
    "Gaussian, variance 0.5, always": Gaussian(**LIARS, probability=1.0),
    "Gaussian, variance 0.01": Gaussian(**LIARS, variance=0.01),
    "colluding Gaussian": ColludingGaussian(**LIARS),
    "bias 0.5": ConstantBias(**LIARS),
    "bias 0.1, always": ConstantBias(**LIARS, bias=0.1, probability=1.0),
    "sign flip of the update, always": SignFlip(**LIARS, probability=1.0, of="update"),
    "sign flip of the model, always": SignFlip(**LIARS, probability=1.0),
    "update times 10, always": ScaledUpdate(**LIARS, probability=1.0),
    "inner product 2, always": InnerProduct(**LIARS, probability=1.0),
    "little is enough, always": LittleIsEnough(**LIARS, probability=1.0),
    "little is enough, omniscient 1.5, always": LittleIsEnough(
        **LIARS, probability=1.0, deviations=1.5, statistics="honest"
    ),
    "mimic of one victim, always": Mimic(**LIARS, probability=1.0),
    "mimic of the lowest, always": Mimic(**LIARS, probability=1.0, victim="lowest"),
    "labels times -1": LabelPoisoning(**LIARS),
    "noise of 0.5 on inputs": DataPoisoning(**LIARS),
    "not finite": NonFinite(**LIARS),
}
SIZES, RULES = (1, 5), ("mean", "median", "krum")
TRIALS, ITERATIONS = 64, 3000


def main() -> None:
    """Measure, print tables, and keep the numbers as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    arguments = parser.parse_args()
    trials = 16 if arguments.quick else TRIALS
    found: dict[str, Any] = {}
    for name, measure in (
        ("false alarms", measure_false_alarms),
        ("attacks", measure_attacks),
        ("settings", measure_settings),
        ("stealth", measure_stealth),
        ("recovery", measure_recovery),
    ):
        found[name] = measure(trials)
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure_false_alarms(trials: int) -> list[dict[str, Any]]:
    """Count the false alarms of honest fleets, and compare with what is promised."""
    fleets = {
        "M = 1": PAPER,
        "M = 5": PAPER.replace(num_shared=5),
        "M = 1, estimated": PAPER.replace(defence=Cusum(variance="estimated")),
        "M = 5, estimated": PAPER.replace(num_shared=5, defence=Cusum(variance="estimated")),
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
    rows = []
    print(
        "\n| honest fleet | promised: one in | counted: one in | of so many | threshold |\n|---|---|---|---|---|"
    )
    for name, scenario in fleets.items():
        watched = scenario.replace(defence=scenario.defence or Cusum())
        assert watched.defence is not None
        result = simulate(watched, trials=4 * trials, seed=1).defence
        assert result is not None
        every, count = result.iterations_per_false_alarm, int(result.false_alarms.sum())
        rows.append({"fleet": name, "promised": watched.defence.false_alarm_every, "counted": every, "alarms": count,
                     "threshold": result.threshold, "variance": result.variance})  # fmt: skip
        promised = watched.defence.false_alarm_every
        print(f"| {name} | {promised:,.0f} | {every:,.0f} | {count} | {result.threshold:.1f} |", flush=True)
    return rows


def measure_attacks(trials: int) -> list[dict[str, Any]]:
    """Measure every attack against every rule and number of shared entries, with and without a defence."""
    rows = []
    for rule in RULES:
        print(f"\n{rule}\n\n| attack | M | no attack | attack | defended | found | half by | honest out | "
              "one false alarm in |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
        clean = {
            shared: _decibels(PAPER.replace(num_shared=shared, aggregation=rule), trials)[0]
            for shared in SIZES
        }
        for name, attack in ATTACKS.items():
            for shared in SIZES:
                scenario = PAPER.replace(num_shared=shared, aggregation=rule, attack=attack)
                plain, _ = _decibels(scenario, trials)
                level, result = _decibels(scenario.replace(defence=Cusum()), trials)
                record = result.defence
                rows.append({
                    "attack": name, "rule": rule, "M": shared, "clean": clean[shared], "attacked": plain,
                    "defended": level,
                    "found": record.found, "delay": record.median_delay, "honest_out": record.honest_time_out,
                    "liars_out": record.byzantine_time_out, "every": record.iterations_per_false_alarm,
                })  # fmt: skip
                print(f"| {name} | {shared} | {clean[shared]:.2f} | {plain:.2f} | {level:.2f} | {record.found:.0%} | "
                      f"{record.median_delay:.0f} | {record.honest_time_out:.2%} | "
                      f"{record.iterations_per_false_alarm:,.0f} |", flush=True)  # fmt: skip
    return rows


def measure_settings(trials: int) -> list[dict[str, Any]]:
    """Measure what the settings are worth, on the paper's attack, a small one and a bias."""
    settings = {
        "default": Cusum(),
        "compared with the server": Cusum(reference="server"),
        "variance estimated": Cusum(variance="estimated"),
        "no shift": Cusum(shift=0.0),
        "one false alarm in 1,000": Cusum(false_alarm_every=1e3),
        "who is out does not download": Cusum(excluded_download=False),
        "back after 20 uploads": Cusum(return_after=20),
        "never back": Cusum(return_after=0),
    }
    rows = []
    print("\n| setting | M | attack | in dB | found | half by | liars out | honest out | one false alarm in |"
          "\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for name, defence in settings.items():
        for shared in (1, 5):
            for which in ("Gaussian, variance 0.5", "Gaussian, variance 0.01", "bias 0.1, always"):
                scenario = PAPER.replace(num_shared=shared, attack=ATTACKS[which], defence=defence)
                level, result = _decibels(scenario, trials)
                record = result.defence
                rows.append({
                    "setting": name, "attack": which, "M": shared, "defended": level, "found": record.found,
                    "delay": record.median_delay, "honest_out": record.honest_time_out,
                    "liars_out": record.byzantine_time_out, "every": record.iterations_per_false_alarm,
                })  # fmt: skip
                print(f"| {name} | {shared} | {which} | {level:.2f} | {record.found:.0%} | {record.median_delay:.0f} | "
                      f"{record.byzantine_time_out:.1%} | {record.honest_time_out:.2%} | "
                      f"{record.iterations_per_false_alarm:,.0f} |", flush=True)  # fmt: skip
    return rows


def measure_stealth(trials: int) -> list[dict[str, Any]]:
    """Find the largest damage that liars can do without being found: by theory, and simulated."""
    defence = Cusum()
    rows = []
    print(
        "\n| M | stealthy attack | no attack | theory | simulated | defended | liars out |"
        "\n|---|---|---|---|---|---|---|"
    )
    for shared in (1, 5):
        scenario = PAPER.replace(num_shared=shared)
        variance = float(honest_variance(scenario)[-1].mean())
        most = defence.ratio * math.log(defence.ratio) / (defence.ratio - 1.0) - 1.0
        bias = 0.5 * defence.shift * math.sqrt(variance)
        clean = _decibels(scenario, trials)[0]
        for name, attack in (
            (
                f"noise, {most:.2f} honest variances",
                Gaussian(**LIARS, probability=1.0, variance=most * variance),
            ),
            (
                f"bias, {0.5 * defence.shift:g} honest deviations",
                ConstantBias(**LIARS, probability=1.0, bias=bias),
            ),
        ):
            attacked = scenario.replace(attack=attack)
            theory = 10 * math.log10(psofed.predict(attacked).network_mse)
            plain, _ = _decibels(attacked, trials)
            level, result = _decibels(attacked.replace(defence=defence), trials)
            out = result.defence.byzantine_time_out
            rows.append({"M": shared, "attack": name, "strength": attack.strength, "clean": clean, "theory": theory,
                         "attacked": plain, "defended": level, "liars_out": out})  # fmt: skip
            print(
                f"| {shared} | {name} | {clean:.2f} | {theory:.2f} | {plain:.2f} | {level:.2f} | {out:.1%} |",
                flush=True,
            )
    return rows


def measure_recovery(trials: int) -> list[dict[str, Any]]:
    """Predict how long recovery takes."""
    rows = []
    print(
        "\n| M | poisoned | recovered | within 1 dB after | within 0.1 dB after | rate |\n|---|---|---|---|---|---|"
    )
    for shared in SIZES:
        scenario = PAPER.replace(num_shared=shared, attack=Gaussian(**LIARS))
        recovery = psofed.predict_recovery(scenario)
        levels = [
            10 * math.log10(level.excess + recovery.noise)
            for level in (recovery.poisoned, recovery.recovered)
        ]
        after = [recovery.iterations(within) for within in (1.0, 0.1)]
        rows.append(
            {
                "M": shared,
                "poisoned": levels[0],
                "recovered": levels[1],
                "after": after,
                "rate": recovery.rate,
            }
        )
        print(
            f"| {shared} | {levels[0]:.2f} | {levels[1]:.2f} | {after[0]:.0f} | {after[1]:.0f} | {recovery.rate:.4f} |"
        )
    return rows


def _decibels(scenario: Scenario, trials: int) -> tuple[float, Any]:
    result = simulate(scenario.replace(iterations=ITERATIONS), trials=trials, seed=0)
    levels = result.steady_state["network_mse"]
    return float(10 * np.log10(np.median(levels))), result


if __name__ == "__main__":
    main()
