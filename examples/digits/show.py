"""Tables and pictures of the study, from results.json and checked.json."""

import json
from pathlib import Path

import numpy as np
from network import DIMENSION
from numpy.typing import NDArray
from study import ATTACKS, CASES, LOOK_EVERY, METHODS, ROUNDS

from psofed.render.figures import finish_axes, make_figure, save_figure, styled
from psofed.render.style import COLOURS, LINES, MARKERS
from psofed.results.estimates import estimate, students_factor

LOOKS = np.arange(0, ROUNDS + 1, LOOK_EVERY)
CLIENTS = 20
FULL = "psofed 100 %"


class Results:
    """All runs, by attack and method."""

    def __init__(self, folder: Path) -> None:
        entries = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        self.entries = {(entry["attack"], entry["method"]): entry for entry in entries}
        self.checked = json.loads((folder / "checked.json").read_text(encoding="utf-8"))

    def curves(self, attack: str, method: str) -> NDArray[np.float64]:
        """Return accuracies (seeds, looks) in %."""
        return 100.0 * np.array(self.entries[attack, method]["accuracy"])

    def final(self, attack: str, method: str) -> NDArray[np.float64]:
        """Return the accuracies (seeds,) after the last round, in %."""
        return self.curves(attack, method)[:, -1]

    def has(self, attack: str, method: str) -> bool:
        """Whether a case has been run: a study that was stopped shows what there is."""
        return (attack, method) in self.entries

    def wire_bytes(self, method: str) -> NDArray[np.float64]:
        """Return how many bytes had gone both ways at each look, in psofed's frames with the same share."""
        share = next(one.shared for one in METHODS if one.name == method)
        found = self.checked[f"none / psofed {100 * share:g} %"]
        return np.where(LOOKS > 0, found["bytes_first_round"] + (LOOKS - 1) * found["bytes_later_round"], 0)

    def value_bytes(self, method: str) -> NDArray[np.float64]:
        """Return likewise the bytes of the weights alone, the first full model included."""
        share = next(one.shared for one in METHODS if one.name == method)
        count = round(share * DIMENSION)
        first = 0 if method.startswith("psfed") or share == 1.0 else DIMENSION - count
        return np.where(LOOKS > 0, 4.0 * CLIENTS * (first + 2 * count * LOOKS), 0)


def show(folder: Path, images: Path | None) -> None:
    """Print the tables, and draw the pictures if a folder for them is given."""
    results = Results(folder)
    print_finals(results)
    print_budgets(results)
    print_damage(results)
    differences = [about["largest_difference"] for about in results.checked.values()]
    print(f"\n{len(differences)} cases with the real strategies; largest difference of a weight {max(differences):.2g}")
    if images is None:
        return
    draw_traffic(results, images / "deep_traffic.png")
    if all(results.has(name, method.name) for name, method in CASES):
        draw_attacks(results, images / "deep_attacks.png")


def print_finals(results: Results) -> None:
    """Print the server's accuracy after the last round, and half of its 95 % interval."""
    print(f"\naccuracy in % after {ROUNDS} rounds\n")
    print("| | " + " | ".join(ATTACKS) + " | clients' own, no attack |")
    print("|---" * (len(ATTACKS) + 2) + "|")
    for method in METHODS:
        cells = []
        for attack in ATTACKS:
            known = results.has(attack, method.name)
            cells.append(in_words(results.final(attack, method.name)) if known else "")
        own = ""
        if results.has("none", method.name):
            own = in_words(100.0 * np.array(results.entries["none", method.name]["own_accuracy"]))
        print(f"| {method.name} | " + " | ".join([*cells, own]) + " |")


def print_budgets(results: Results) -> None:
    """Print accuracies at equal bytes: those of 100 rounds at 10 %, counted both ways."""
    for words, count in (("wire", results.wire_bytes), ("weights alone", results.value_bytes)):
        budget = count("psofed 10 %")[-1]
        print(f"\nat {budget / 1e6:.2f} MB ({words})\n")
        for method in METHODS:
            looks = np.flatnonzero(count(method.name) <= budget)
            if len(looks) < 2:
                print(f"| {method.name} | not one look within the budget |")
                continue
            cells = [
                in_words(results.curves(attack, method.name)[:, looks[-1]])
                for attack in ("none", "gaussian")
                if results.has(attack, method.name)
            ]
            if results.has("gaussian", method.name) and results.has("gaussian", FULL):
                reached = np.flatnonzero(count(FULL) <= budget)[-1]
                whole = results.curves("gaussian", FULL)[:, reached]
                gain = results.curves("gaussian", method.name)[:, looks[-1]] - whole
                cells.append(f"above {FULL}, gaussian: {in_words(gain)}")
            total = count(method.name)[-1] / 1e6
            print(f"| {method.name} | {total:.2f} MB in all | round {LOOKS[looks[-1]]} | {' | '.join(cells)} |")


def print_damage(results: Results) -> None:
    """Print what an attack costs, seed by seed, and how much less than with all entries shared."""
    print("\nwhat the attack costs in points, and the difference to psofed 100 %\n")
    for attack in list(ATTACKS)[1:]:
        for method in METHODS:
            if not (results.has(attack, method.name) and results.has(attack, FULL)):
                continue
            gain = results.final(attack, method.name) - results.final(attack, FULL)
            cells = [f"accuracy above {FULL}: {in_words(gain)}"]
            if results.has("none", method.name) and results.has("none", FULL):
                lost, whole = (
                    results.final("none", name) - results.final(attack, name) for name in (method.name, FULL)
                )
                cells += [f"costs {in_words(lost)}", f"less by {in_words(whole - lost)}"]
            print(f"| {attack} | {method.name} | {' | '.join(cells)} |")


def in_words(values: NDArray[np.float64]) -> str:
    """Return mean ± half of Student's interval over seeds; median and its interval (~) where a few seeds decide."""
    found = estimate(values)
    if found.is_heavy_tailed and float(np.mean(values)) > 20.0:
        low, high = found.median_interval
        return f"~{found.median:.1f} [{low:.1f}, {high:.1f}]"
    half = students_factor(len(values)) * float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return f"{np.mean(values):.1f} ± {half:.1f}"


def draw_traffic(results: Results, path: Path) -> None:
    """Draw accuracy against bytes, without attack and with the paper's."""
    with styled():
        titles = {"none": "no attack", "gaussian": "4 of 20 clients send noise"}
        there = [name for name in titles if results.has(name, FULL)]
        figure = make_figure(1.6 + 3.4 * len(there), 3.6)
        panels = figure.subplots(1, len(there), sharey=True, squeeze=False)[0]
        shown = [method.name for method in METHODS if method.rule == "mean"]
        for axes, attack in zip(panels, there, strict=True):
            for number, method in enumerate(shown):
                if not results.has(attack, method):
                    continue
                mean = results.curves(attack, method).mean(axis=0)
                label = "FedAvg = psofed 100 %" if method == FULL else method
                axes.plot(
                    results.wire_bytes(method)[1:] / 1e6, mean[1:], LINES[number // 7], color=COLOURS[number % 7],
                    marker=MARKERS[number % 7], markevery=4, markersize=4, label=label,
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_title(titles[attack])
            finish_axes(axes, "MB on the wire, both ways, all clients", "server's accuracy in %")
            axes.get_legend().remove()
        panels[-1].legend(fontsize=7, loc="lower right", handlelength=3.5)
        save_figure(figure, path)


def draw_attacks(results: Results, path: Path) -> None:
    """Draw the final accuracy under every attack that a method was tried with, and its interval."""
    attacks = list(ATTACKS)[:5]
    shown = ["psofed 5 %", "psofed 25 %", FULL, *(method.name for method in METHODS[6:])]
    with styled():
        figure = make_figure(7.6, 3.8)
        axes = figure.subplots()
        for number, method in enumerate(shown):
            tried = [place for place, attack in enumerate(attacks) if results.has(attack, method)]
            values = np.array([results.final(attacks[place], method) for place in tried])
            half = students_factor(values.shape[1]) * values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
            places = np.array(tried) + 0.09 * (number - (len(shown) - 1) / 2)
            label = "FedAvg = psofed 100 %" if method == FULL else method
            axes.errorbar(
                places, values.mean(axis=1), half, fmt=MARKERS[number % 7], color=COLOURS[number % 7], label=label,
                markersize=4.5, capsize=2, lw=1, mfc="white" if number >= 7 else None,
            )  # fmt: skip
        axes.set_xticks(range(len(attacks)), ["no attack", *attacks[1:]])
        finish_axes(axes, "", f"server's accuracy in % after {ROUNDS} rounds")
        axes.legend(ncols=2, fontsize=7, loc="lower left", framealpha=0.9)
        save_figure(figure, path)
