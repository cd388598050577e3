"""Does partial sharing still help when the server defends itself? A matrix attack × aggregation rule × M.

Every cell is a simulation of the same fleet on the same data. M entries are shared by P participants, and M varies in
two ways:

- *equal traffic*: P · M is the same for all M, so a small M buys more participants. This is what a network operator
  compares: the same numbers on the air in every iteration, spent on many clients a little each, or on few in full.
- *equal participants*: P is the same for all M, as in the paper's figures, and traffic grows with M.

With M = D they are the same scenario. There are two *occasions*: intermittent attacks as in the paper (p_a = 0.2, 30 %
of the clients Byzantine), and persistent ones (p_a = 1, 20 % Byzantine). Rules that assume a number of attackers
assume a fifth of the participants, at least one.
"""

import csv
import json
import math
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from psofed._version import __version__
from psofed.common.files import atomic_path
from psofed.common.types import FloatArray, ProgressCallback
from psofed.common.validation import check_integer
from psofed.parts.registry import find_part
from psofed.results import METRIC_TITLES, Estimate, estimate
from psofed.scenario import Scenario

DIMENSION, TRAFFIC = 5, 30
MODES = ("equal traffic", "equal participants")
OCCASIONS: dict[str, dict[str, Any]] = {
    "intermittent": {"num_byzantine": 30, "probability": 0.2},
    "persistent": {"num_byzantine": 20, "probability": 1.0},
}
# What stands in the table, and the attack it is.
ATTACKS: dict[str, dict[str, Any]] = {
    "none": {},
    "Gaussian": {"kind": "gaussian", "variance": 0.5},
    "colluding Gaussian": {"kind": "colluding-gaussian", "variance": 0.5},
    "constant bias": {"kind": "constant-bias", "bias": 0.5},
    "flipped model": {"kind": "sign-flip", "of": "model"},
    "flipped update ×5": {"kind": "sign-flip", "of": "update", "scale": 5.0},
    "update ×10": {"kind": "scaled-update", "scale": 10.0},
    "a little is enough": {"kind": "little-is-enough", "deviations": 1.5, "statistics": "honest"},
    "inner product": {"kind": "inner-product", "scale": 2.0},
    "mimic": {"kind": "mimic", "victim": "lowest"},
    "poisoned labels": {"kind": "label-poisoning"},
    "poisoned inputs": {"kind": "data-poisoning", "variance": 0.5},
    "silence": {"kind": "drop-out"},
    "NaN and ∞": {"kind": "non-finite"},
}
RULES = (
    "mean", "median", "trimmed-mean", "krum", "multi-krum",
    "geometric-median", "centred-clipping", "norm-clipping", "fltrust",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """Where a simulation stands in the matrix: which occasion, attack and rule, how many entries and participants."""

    occasion: str
    attack: str
    rule: str
    num_shared: int
    num_participants: int

    def scenario(self, iterations: int) -> Scenario:
        """Return what is simulated for the cell.

        Examples
        --------
        >>> cell = Cell("persistent", "mimic", "krum", num_shared=1, num_participants=30)
        >>> cell.scenario(100).aggregation
        Krum(tolerated=6)
        """
        rule = find_part("aggregation", self.rule)
        assumed = max(1, self.num_participants // 5)
        options = {name: assumed for name in ("trim", "tolerated") if name in rule.options()}
        mapping = {**OCCASIONS[self.occasion], **ATTACKS[self.attack]}
        kind = mapping.pop("kind", None)
        attack = None if kind is None else find_part("attack", kind).from_mapping(mapping)
        return Scenario(
            num_clients=100,
            dimension=DIMENSION,
            num_participants=self.num_participants,
            num_shared=self.num_shared,
            iterations=iterations,
            aggregation=rule(**options),
            attack=attack,
        )


@dataclass(frozen=True)
class Gain:
    """How many dB one cell lies below another, with an interval over trials on the same data.

    Attributes
    ----------
    decibels : float
        Positive where the first is better; infinite where only the second diverges, NaN where both do.
    interval : (float, float)
        Simultaneous 95 % interval over all comparisons of a panel.
    """

    decibels: float
    interval: tuple[float, float]

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


@dataclass(frozen=True, eq=False)
class Matrix:
    """All cells' steady states.

    Attributes
    ----------
    shared : tuple of int
        The values of M, the last of which is D.
    trials, iterations, tail, seed : int
        How each cell was simulated.
    steady_states : dict of dict of arrays (trials,)
        By cell and metric; infinite where a trial diverged.
    """

    shared: tuple[int, ...]
    trials: int
    iterations: int
    tail: int
    seed: int
    steady_states: dict[Cell, dict[str, FloatArray]] = field(default_factory=dict)

    def cell(self, occasion: str, mode: str, attack: str, rule: str, num_shared: int) -> Cell:
        """Return the cell of a panel, in one of the MODES."""
        return Cell(occasion, attack, rule, num_shared, participants(mode, num_shared))

    def estimate(self, cell: Cell, metric: str) -> Estimate:
        """Return mean and interval of a cell."""
        return estimate(self.steady_states[cell][metric])

    def gain(self, better: Cell, worse: Cell, metric: str) -> Gain:
        """Compare two cells on the same data: dB by which `better` lies below `worse`."""
        a, b = self.steady_states[better][metric], self.steady_states[worse][metric]
        level = 0.05 / (len(ATTACKS) * len(RULES))
        lost, won = np.isinf(a).sum(), np.isinf(b).sum()
        if lost or won:
            # A sign test, where only one of the two diverges; otherwise nothing can be said.
            clear = not (lost and won) and 2 * 0.5 ** (lost + won) < level
            value = (math.inf if won else -math.inf) if clear else math.nan
            return Gain(value, (value, value))
        from scipy.special import stdtrit

        # Delta method for the logarithm of a ratio of means, with trials as pairs.
        spread = np.std(b / b.mean() - a / a.mean(), ddof=1) / math.sqrt(len(a))
        reach = 10 / math.log(10) * float(stdtrit(len(a) - 1, 1 - level / 2)) * float(spread)
        value = 10 * math.log10(b.mean() / a.mean())
        return Gain(value, (value - reach, value + reach))

    def sharing_gain(self, occasion: str, mode: str, attack: str, rule: str, metric: str) -> Gain:
        """Return what sharing least gains over sharing everything."""
        few, all_ = (self.cell(occasion, mode, attack, rule, m) for m in (self.shared[0], self.shared[-1]))
        return self.gain(few, all_, metric)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists: every cell, and what partial sharing gains in each."""
        cells = []
        for cell in self.steady_states:
            found = {metric: self.estimate(cell, metric) for metric in METRIC_TITLES}
            cells.append(
                {
                    "occasion": cell.occasion,
                    "attack": cell.attack,
                    "aggregation": cell.rule,
                    "num_shared": cell.num_shared,
                    "num_participants": cell.num_participants,
                    "diverged_trials": int(np.isinf(self.steady_states[cell]["server_msd"]).sum()),
                    **{metric: _estimate_to_json(value) for metric, value in found.items()},
                }
            )
        gains = []
        for occasion, mode, attack, rule, metric in product(OCCASIONS, MODES, ATTACKS, RULES, METRIC_TITLES):
            gain = self.sharing_gain(occasion, mode, attack, rule, metric)
            gains.append(
                {
                    "occasion": occasion,
                    "mode": mode,
                    "attack": attack,
                    "aggregation": rule,
                    "metric": metric,
                    "gain_db": _number(gain.decibels),
                    "interval_db": [_number(end) for end in gain.interval],
                    "significant": gain.is_significant,
                }
            )
        about = {"trials": self.trials, "iterations": self.iterations, "tail": self.tail, "seed": self.seed}
        return {**about, "version": __version__, "shared": list(self.shared), "cells": cells, "gains": gains}

    def save_csv(self, path: Path) -> None:
        """Write one line per cell and metric."""
        with atomic_path(path) as temporary, Path(temporary).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([
                "occasion", "attack", "aggregation", "num_shared", "num_participants", "metric",
                "mean", "low_95", "high_95", "mean_db", "diverged_trials",
            ])  # fmt: skip
            for cell, states in self.steady_states.items():
                for metric, values in states.items():
                    found = estimate(values)
                    writer.writerow([
                        cell.occasion, cell.attack, cell.rule, cell.num_shared, cell.num_participants, metric,
                        *(f"{x:.6g}" for x in (found.mean, *found.interval, found.decibels)),
                        int(np.isinf(values).sum()),
                    ])  # fmt: skip


def participants(mode: str, num_shared: int) -> int:
    """Return |S_n| for M entries: what the same traffic buys, or always as many as with M = D.

    Examples
    --------
    >>> [participants("equal traffic", m) for m in (1, 3, 5)], participants("equal participants", 1)
    ([30, 10, 6], 6)
    """
    return TRAFFIC // num_shared if mode == "equal traffic" else TRAFFIC // DIMENSION


def run_matrix(
    *,
    shared: tuple[int, ...] = (1, 3, DIMENSION),
    trials: int = 32,
    iterations: int = 1200,
    seed: int = 0,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> Matrix:
    """Simulate all cells.

    Parameters
    ----------
    shared : tuple of int
        Values of M in ascending order; D last.
    trials, iterations, seed, threads
        As in :func:`psofed.simulate`; the steady state is the last third.
    progress : callable, optional
        Called with (done, total) cells.
    """
    from psofed.simulation.monte_carlo import simulate

    matrix = Matrix(shared, trials, iterations, iterations // 3, seed)
    cells = list(
        dict.fromkeys(
            matrix.cell(occasion, mode, attack, rule, m)
            for occasion, mode, attack, rule, m in product(OCCASIONS, MODES, ATTACKS, RULES, shared)
        )
    )
    for done, cell in enumerate(cells):
        if progress is not None:
            progress(done, len(cells))
        result = simulate(cell.scenario(iterations), trials, seed, threads, tail=matrix.tail)
        matrix.steady_states[cell] = result.steady_state
    return matrix


def run_resilience(
    out: str | Path,
    quick: bool = False,
    trials: int | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    seed: int = 0,
) -> Matrix:
    """Make the matrix and write ``resilience*.svg``, ``.png``, ``.json`` and ``.csv`` into the folder `out`.

    Parameters
    ----------
    out : path
        Made if it is not there.
    quick : bool
        A rough version: fewer trials, iterations and values of M.
    trials, threads, progress, seed
        See :func:`run_matrix`.
    """
    from psofed.paper.resilience_plots import plot_gains, plot_matrix, save_picture

    default = 16 if quick else 32
    matrix = run_matrix(
        shared=(1, DIMENSION) if quick else (1, 3, DIMENSION),
        trials=default if trials is None else check_integer("trials", trials, 2),
        iterations=600 if quick else 1200,
        seed=seed,
        threads=threads,
        progress=progress,
    )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for metric in ("network_mse", "server_msd"):
        for occasion in OCCASIONS:
            save_picture(plot_matrix(matrix, occasion, metric), folder / f"resilience_{occasion}_{metric}")
        save_picture(plot_gains(matrix, metric), folder / f"resilience_gain_{metric}")
    with atomic_path(folder / "resilience.json") as temporary:
        Path(temporary).write_text(json.dumps(matrix.to_json(), indent=1, allow_nan=False), encoding="utf-8")
    matrix.save_csv(folder / "resilience.csv")
    return matrix


def _estimate_to_json(value: Estimate) -> dict[str, Any]:
    ends = [_number(end) for end in value.interval]
    return {"mean": _number(value.mean), "interval_95": ends, "mean_db": _number(value.decibels)}


def _number(value: float) -> float | str | None:
    """JSON has no infinity; a diverged cell says so in words."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "diverged" if value > 0 else "-diverged"
    return value
