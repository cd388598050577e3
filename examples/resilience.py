"""Does partial sharing still help when the server defends itself? The figure of docs/resilience.md.

Run as `python examples/resilience.py docs/images/resilience.png`. It compares two designs of the same traffic, 30
values per iteration: 30 participants share one of five parameters, or 6 share all five. It prints the largest loss of
each rule and design, and draws what the first design gains over the second, for every attack and rule. Finished points
are kept in `--store`; `--trials 8` gives a rough version.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from psofed import Scenario, aggregations, attacks, defences, sweep
from psofed.results.differences import MetricDifference, paired_difference

FLEET = Scenario(num_clients=100, dimension=5, iterations=1200, stepsize=0.15)
DESIGNS = {"M = 1, 30 participants": (1, 30), "M = 5, 6 participants": (5, 6)}
OCCASIONS = {
    "intermittent": {"num_byzantine": 30, "probability": 0.2},
    "persistent": {"num_byzantine": 20, "probability": 1.0},
}
ATTACKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Gaussian": (attacks.Gaussian, {"variance": 0.5}),
    "colluding Gaussian": (attacks.ColludingGaussian, {"variance": 0.5}),
    "constant bias": (attacks.ConstantBias, {"bias": 0.5}),
    "flipped model": (attacks.SignFlip, {"of": "model"}),
    "flipped update ×5": (attacks.SignFlip, {"of": "update", "scale": 5.0}),
    "update ×10": (attacks.ScaledUpdate, {"scale": 10.0}),
    "a little is enough": (attacks.LittleIsEnough, {}),
    "a little is enough, 1.5 σ": (attacks.LittleIsEnough, {"deviations": 1.5, "statistics": "honest"}),
    "inner product": (attacks.InnerProduct, {"scale": 2.0}),
    "Min-Max": (attacks.MinMax, {}),
    "Min-Sum": (attacks.MinSum, {}),
    "mimic": (attacks.Mimic, {}),
    "silence": (attacks.DropOut, {}),
    "NaN and ∞": (attacks.NonFinite, {}),
    "poisoned labels": (attacks.LabelPoisoning, {}),
    "poisoned inputs": (attacks.DataPoisoning, {"variance": 0.5}),
}
ON_UPLOADS = list(ATTACKS)[:-2]
# Each rule, and its field for a number of Byzantine participants: a fifth of the participants.
RULES: dict[str, tuple[Any, str]] = {
    "mean": (aggregations.Mean, ""),
    "median": (aggregations.Median, ""),
    "trimmed mean": (aggregations.TrimmedMean, "trim"),
    "MeaMed": (aggregations.MeaMed, "tolerated"),
    "Phocas": (aggregations.Phocas, "tolerated"),
    "Krum": (aggregations.Krum, "tolerated"),
    "multi-Krum": (aggregations.MultiKrum, "tolerated"),
    "CGE": (aggregations.CGE, "tolerated"),
    "geometric median": (aggregations.GeometricMedian, ""),
    "centred clipping": (aggregations.CentredClipping, ""),
    "norm clipping": (aggregations.NormClipping, ""),
    "FLTrust": (aggregations.FLTrust, ""),
    "mean + CUSUM": (aggregations.Mean, ""),
    "median + CUSUM": (aggregations.Median, ""),
}
Levels = dict[tuple[str, str, str, str], Any]  # trials by occasion, attack, rule and design; "" is no attack


def main() -> None:
    """Simulate, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--store", type=Path, default=Path("out/cells"))
    arguments = parser.parse_args()
    levels = simulate_all(arguments.trials, arguments.store)
    print_losses(levels)
    draw(levels, arguments.picture)


def simulate_all(trials: int, store: Path) -> Levels:
    """Return the steady-state network MSE of every trial; infinite where it diverged."""
    hostile: dict[tuple[str, str], Any] = {("", ""): None}
    for occasion, who in OCCASIONS.items():
        hostile |= {(occasion, name): make(**who, **options) for name, (make, options) in ATTACKS.items()}
    levels = {}
    for (rule, (make, field)), (design, (shared, participants)) in product(RULES.items(), DESIGNS.items()):
        fleet = FLEET.replace(
            num_shared=shared,
            num_participants=participants,
            aggregation=make(**({field: participants // 5} if field else {})),
            defence=defences.Cusum() if "CUSUM" in rule else None,
        )
        result = sweep(fleet, {"attack": list(hostile.values())}, trials, tail=400, store=store)
        for (occasion, attack), cell in zip(hostile, result.cells, strict=True):
            levels[occasion, attack, rule, design] = cell.steady_state["network_mse"]
    return levels


def compare(levels: Levels, occasion: str, attack: str, rule: str) -> MetricDifference:
    """Return what M = 1 gains over M = 5; intervals hold for all comparisons of a panel at once."""
    few, full = (levels[occasion, attack, rule, design] for design in DESIGNS)
    return paired_difference(full, few, 1 - 0.05 / (len(ATTACKS) * len(RULES)))


def print_losses(levels: Levels) -> None:
    """Print the largest loss of each rule and design to a persistent attack on uploads, as Markdown."""
    print("| rule |", " | ".join(DESIGNS), "|\n| --- | --- | --- |")
    for rule in RULES:
        texts = []
        for design in DESIGNS:
            clean = levels["", "", rule, design]
            losses = {
                name: paired_difference(levels["persistent", name, rule, design], clean).decibels for name in ON_UPLOADS
            }
            worst = max(losses, key=lambda name: losses[name])
            text = f"{losses[worst]:.2f} dB" if np.isfinite(losses[worst]) else "diverges"
            texts.append(f"{text} ({worst})")
        print(f"| {rule} |", " | ".join(texts), "|")
    for occasion in OCCASIONS:
        gains = [compare(levels, occasion, name, rule) for name in ON_UPLOADS for rule in RULES]
        sure = [gain.decibels for gain in gains if gain.is_significant]
        better, worse = sum(gain > 0 for gain in sure), sum(gain < 0 for gain in sure)
        print(f"{occasion}: of {len(gains)} combinations M = 1 is better in {better}, worse in {worse}")


def draw(levels: Levels, path: Path) -> None:
    """Draw a heat map of gains for each occasion; grey where a gain is not significant."""
    figure, panels = plt.subplots(2, 1, figsize=(10, 11), sharex=True, layout="constrained")
    colours = plt.get_cmap("RdBu").with_extremes(bad="0.9")
    for panel, (occasion, who) in zip(panels, OCCASIONS.items(), strict=True):
        gains = [[compare(levels, occasion, attack, rule) for rule in RULES] for attack in ATTACKS]
        shown = np.array([[gain.decibels if gain.is_significant else np.nan for gain in row] for row in gains])
        panel.imshow(np.clip(shown, -12, 12), cmap=colours, vmin=-12, vmax=12, aspect="auto")
        for y, row in enumerate(gains):
            for x, gain in enumerate(row):
                dark = "white" if abs(shown[y, x]) > 7 else "black"
                panel.text(x, y, describe(gain), ha="center", va="center", fontsize=8, color=dark)
        panel.set_title(
            f"{occasion}: {who['num_byzantine']} of 100 clients Byzantine, probability {who['probability']:g}"
        )
        panel.set_yticks(range(len(ATTACKS)), list(ATTACKS))
    panels[-1].set_xticks(range(len(RULES)), list(RULES), rotation=40, ha="right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def describe(gain: MetricDifference) -> str:
    """Write a gain in dB; ~ marks the median of heavy tails."""
    if np.isnan(gain.decibels):
        return "both\ndiverge"
    if np.isinf(gain.decibels):
        return f"M = {5 if gain.decibels > 0 else 1}\ndiverges"
    return f"{'~' if gain.is_heavy_tailed else ''}{gain.decibels:+.1f}".replace("-", "−")


if __name__ == "__main__":
    main()
