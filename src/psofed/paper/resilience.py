"""Does partial sharing still help when the server defends itself? A matrix attack × aggregation rule × M.

Every cell is a simulation of the same fleet on the same data. M entries are shared by P participants, and M varies in
two ways:

- *equal traffic*: P · M is the same for all M, so a small M buys more participants. This is what a network operator
  compares: the same numbers on the air in every iteration, spent on many clients a little each, or on few in full.
- *equal participants*: P is the same for all M, as in the paper's figures, and traffic grows with M.

With M = D they are the same scenario. There are two *occasions*: intermittent attacks as in the paper (p_a = 0.2, 30 %
of the clients Byzantine), and persistent ones (p_a = 1, 20 % Byzantine). Rules that assume a number of attackers
assume a fifth of the participants, at least one.

The matrix is an ordinary sweep over two axes, *attack* (with its occasion) and *design* (M, P and rule): it is kept
in a store, resumed, run on a cluster and saved as any other. Many of its cells are heavy-tailed, so medians and
quantiles stand beside means, and a trial that is *carried away* is an outcome of its own: one that diverged, or whose
server ended further from the target than a server that knows nothing.
"""

import math
from concurrent.futures import Executor
from dataclasses import asdict, astuple, dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.csv_text import csv_text
from psofed.common.files import write_atomically, write_json
from psofed.common.numbers import finite_or_none, to_decibels
from psofed.common.types import FloatArray, ProgressCallback
from psofed.common.validation import check_integer
from psofed.parts.base import Attack
from psofed.parts.registry import find_part
from psofed.results import METRIC_TITLES, Estimate, MetricDifference
from psofed.results.metric_difference import paired_difference
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario
from psofed.studies.sweeps import Axis, CellResult, CellStore, Grid, SweepResult, run_sweep

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
    "a little is enough": {"kind": "little-is-enough"},
    "… at 1.5 σ": {"kind": "little-is-enough", "deviations": 1.5, "statistics": "honest"},
    "… searched": {"kind": "little-is-enough", "statistics": "honest", "search": 12},
    "inner product": {"kind": "inner-product", "scale": 2.0},
    "inner product, searched": {"kind": "inner-product", "scale": 4.0, "search": 12},
    "Min-Max": {"kind": "min-max"},
    "Min-Sum": {"kind": "min-sum"},
    "mimic": {"kind": "mimic"},
    "poisoned labels": {"kind": "label-poisoning"},
    "poisoned inputs": {"kind": "data-poisoning", "variance": 0.5},
    "silence": {"kind": "drop-out"},
    "NaN and ∞": {"kind": "non-finite"},
}
# All but "mda", which tries all ways to leave out attackers: too many with 30 participants; and two with a defence.
RULES = (
    "mean", "median", "trimmed-mean", "meamed", "phocas", "krum", "multi-krum", "cge",
    "geometric-median", "centred-clipping", "norm-clipping", "fltrust", "mean + cusum", "median + cusum",
)  # fmt: skip

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

# A server that knows nothing is ‖w*‖² = 1 away from the target; one that is further has been led away.
_KNOWS_NOTHING = 1.0


@dataclass(frozen=True)
class Place:
    """Where a simulation stands in the matrix: which occasion, attack and rule, how many entries and participants."""

    occasion: str
    attack: str
    aggregation: str
    num_shared: int
    num_participants: int

    @property
    def attack_name(self) -> str:
        """The label on the axis of attacks."""
        return f"{self.occasion}: {self.attack}"

    @property
    def design_name(self) -> str:
        """The label on the axis of designs."""
        return f"M = {self.num_shared}, P = {self.num_participants}, {self.aggregation}"


@dataclass(frozen=True, eq=False)
class Matrix:
    """The sweep, read as a matrix.

    Attributes
    ----------
    sweep : SweepResult
    shared : tuple of int
        The values of M, the last of which is D.
    """

    sweep: SweepResult
    shared: tuple[int, ...]

    @property
    def trials(self) -> int:
        """Of every cell."""
        return self.sweep.grid.trials

    def place(self, occasion: str, mode: str, attack: str, rule: str, num_shared: int) -> Place:
        """Return the place in a panel, in one of the MODES."""
        return Place(occasion, attack, rule, num_shared, participants(mode, num_shared))

    def cell(self, place: Place) -> CellResult:
        """Return what was simulated there."""
        attacks, designs = self._numbers
        return self.sweep.cells[attacks[place.attack_name] * len(designs) + designs[place.design_name]]

    def estimate(self, place: Place, metric: str) -> Estimate:
        """Return mean and median with their intervals."""
        return self.cell(place).estimate(metric)

    def gain(self, better: Place, worse: Place, metric: str) -> MetricDifference:
        """Compare two cells on the same data: dB by which `better` lies below `worse` (+), or above (−).

        Intervals hold simultaneously for all comparisons of a panel, and for heavy tails
        (:func:`psofed.results.metric_difference.paired_difference`).
        """
        confidence = 1 - 0.05 / (len(ATTACKS) * len(RULES))
        return paired_difference(
            self.cell(worse).steady_state[metric], self.cell(better).steady_state[metric], confidence
        )

    def sharing_gain(self, occasion: str, mode: str, attack: str, rule: str, metric: str) -> MetricDifference:
        """Return what sharing least gains over sharing everything."""
        few, all_ = (self.place(occasion, mode, attack, rule, m) for m in (self.shared[0], self.shared[-1]))
        return self.gain(few, all_, metric)

    def places(self) -> list[Place]:
        """Return all cells' places, each once."""
        return _places(self.shared)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists: every cell, and what partial sharing gains in each."""
        grid, cells = self.sweep.grid, []
        for place in self.places():
            cell = self.cell(place)
            levels = {
                metric: {
                    **cell.estimate(metric).to_json(),
                    "quantiles_db": dict(zip(map(str, QUANTILES), quantiles_db(cell, metric), strict=True)),
                }
                for metric in METRIC_TITLES
            }
            about = {**asdict(place), "diverged_trials": cell.num_diverged, **carried_away(cell)}
            cells.append({**about, **levels})
        names = ("occasion", "mode", "attack", "aggregation", "metric")
        gains = [
            dict(zip(names, panel, strict=True)) | self.sharing_gain(*panel).to_json()
            for panel in product(OCCASIONS, MODES, ATTACKS, RULES, METRIC_TITLES)
        ]
        plain: dict[str, Any] = finite_or_none({
            "trials": grid.trials, "iterations": grid.base.iterations, "tail": grid.tail, "seed": grid.seed,
            "version": self.sweep.version, "shared": self.shared, "cells": cells, "gains": gains,
        })  # fmt: skip
        return plain

    def save_csv(self, path: Path) -> None:
        """Write one line per cell and metric."""
        rows: list[list[Any]] = [[
            *(field.name for field in fields(Place)), "metric", "mean", "low_95", "high_95", "mean_db", "median_db",
            "median_low_db", "median_high_db", *(f"quantile_{q:g}_db" for q in QUANTILES), "heavy_tailed",
            "diverged_trials", "carried_away",
        ]]  # fmt: skip
        for place, metric in product(self.places(), METRIC_TITLES):
            cell = self.cell(place)
            found, away = cell.estimate(metric), carried_away(cell)["carried_away"]
            ends = [to_decibels(end) if end > 0 else math.nan for end in found.median_interval]
            numbers = [found.mean, *found.interval, found.decibels, found.median_decibels, *ends]
            texts = (f"{number:.6g}" for number in (*numbers, *quantiles_db(cell, metric)))
            about = [found.is_heavy_tailed, cell.num_diverged, f"{away:.6g}"]
            rows.append([*astuple(place), metric, *texts, *about])
        write_atomically(path, csv_text(rows).encode(), mode=0o666)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        attacks, designs = ({name: at for at, name in enumerate(axis.names)} for axis in self.sweep.grid.axes)
        return attacks, designs


def participants(mode: str, num_shared: int) -> int:
    """Return |S_n| for M entries: what the same traffic buys, or always as many as with M = D.

    Examples
    --------
    >>> [participants("equal traffic", m) for m in (1, 3, 5)], participants("equal participants", 1)
    ([30, 10, 6], 6)
    """
    return TRAFFIC // num_shared if mode == "equal traffic" else TRAFFIC // DIMENSION


def resilience_grid(
    shared: tuple[int, ...] = (1, 3, DIMENSION), trials: int = 256, iterations: int = 1200, seed: int = 0
) -> Grid:
    """Return the matrix as a grid, for :func:`psofed.studies.sweeps.run_sweep`.

    Parameters
    ----------
    shared : tuple of int
        Values of M in ascending order; D last.
    trials, iterations, seed : int
        As in :func:`psofed.simulate`; the steady state is the last third.

    Examples
    --------
    >>> grid = resilience_grid(shared=(1, 5))
    >>> [len(axis.values) for axis in grid.axes], grid.axes[1].names[3]
    ([38, 42], 'M = 1, P = 30, meamed')
    """
    places = _places(shared)
    attacks = {place.attack_name: (make_attack(place.occasion, place.attack),) for place in places}
    designs = {
        place.design_name: (
            place.num_shared,
            place.num_participants,
            *make_rule(place.aggregation, place.num_participants),
        )
        for place in places
    }
    base = Scenario(num_clients=100, dimension=DIMENSION, num_participants=6, iterations=iterations)
    varied = ("num_shared", "num_participants", "aggregation", "defence")
    axes = (
        Axis(("attack",), tuple(attacks.values()), tuple(attacks)),
        Axis(varied, tuple(designs.values()), tuple(designs)),
    )
    return Grid(base, axes, trials=trials, seed=seed, tail=iterations // 3)


def make_attack(occasion: str, attack: str) -> Attack | None:
    """Return an attack of the matrix, as it is made on an occasion."""
    mapping = {**OCCASIONS[occasion], **ATTACKS[attack]}
    kind = mapping.pop("kind", None)
    made: Attack | None = None if kind is None else find_part("attack", kind).from_mapping(mapping)
    return made


def make_rule(rule: str, num_participants: int) -> tuple[Any, Any]:
    """Return a rule that assumes a fifth of the participants to attack, and the defence beside it, if any.

    Examples
    --------
    >>> make_rule("krum", 30), make_rule("mean + cusum", 30)[1].kind
    ((Krum(tolerated=6), None), 'cusum')
    """
    name, _, defence = rule.partition(" + ")
    part = find_part("aggregation", name)
    assumed = max(1, num_participants // 5)
    made = part(**{option: assumed for option in ("trim", "tolerated") if option in part.options()})
    return made, find_part("defence", defence)() if defence else None


def quantiles_db(cell: CellResult, metric: str) -> list[float]:
    """Return the QUANTILES over trials in dB; infinite where that share of trials diverged."""
    values: FloatArray = cell.steady_state[metric]
    # Of the sample itself: between a finite and an infinite value there is no mean.
    found = np.quantile(values, QUANTILES, method="inverted_cdf")
    return [to_decibels(value) for value in found.tolist()]


def carried_away(cell: CellResult) -> dict[str, Any]:
    """Return the fraction of trials that were carried away, and how fast these still go.

    A trial is carried away if it diverged, or if its server ended further from the target than a server that knows
    nothing. The growth is the median over such trials: dB of server MSD from the first half of the tail to the second.
    """
    level, change = cell.steady_state["server_msd"], cell.tail_change["server_msd"]
    away = ~(level <= _KNOWS_NOTHING)
    finite = away & np.isfinite(level) & np.isfinite(change)
    growth = math.nan
    if finite.any():
        before, after = level[finite] - change[finite] / 2, level[finite] + change[finite] / 2
        both = (before > 0) & (after > 0)
        growth = float(np.median(to_decibels(after[both] / before[both]))) if both.any() else math.nan
    return {"carried_away": float(np.mean(away)), "growth_db": growth}


def run_resilience(
    out: str | Path,
    quick: bool = False,
    trials: int | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    seed: int = 0,
    executor: Executor | None = None,
) -> Matrix:
    """Make the matrix and write ``resilience*.svg``, ``.png``, ``.md``, ``.json``, ``.csv``, ``.nc`` into `out`.

    Parameters
    ----------
    out : path
        Made if it is not there. Finished cells are kept in ``out/cells``, and not simulated again.
    quick : bool
        A rough version: fewer trials, iterations and values of M.
    trials : int, optional
        256 by default, 16 of the quick version.
    threads, progress, executor
        See :func:`psofed.sweep`.
    seed : int
    """
    from psofed.paper.resilience_answers import make_tables
    from psofed.paper.resilience_plots import gains_chart, matrix_chart
    from psofed.render.style import save_picture

    shared = (1, DIMENSION) if quick else (1, 3, DIMENSION)
    number = check_integer("trials", trials if trials is not None else (16 if quick else 256), 2)
    grid = resilience_grid(shared, number, 600 if quick else 1200, seed)
    folder = Path(out)
    store = CellStore(folder / "cells")
    sweep = run_sweep(grid, threads=threads, executor=executor, store=store, progress=progress)
    matrix = Matrix(sweep, shared)
    for metric in ("network_mse", "server_msd"):
        for occasion in OCCASIONS:
            save_picture(matrix_chart(matrix, occasion, metric), folder / f"resilience_{occasion}_{metric}")
        save_picture(gains_chart(matrix, metric), folder / f"resilience_gain_{metric}")
    write_json(folder / "resilience.json", matrix.to_json(), mode=0o666)
    write_atomically(folder / "resilience.md", make_tables(matrix).encode(), mode=0o666)
    matrix.save_csv(folder / "resilience.csv")
    save_dataset(sweep.to_dataset(), folder / "resilience.nc")
    return matrix


def _places(shared: tuple[int, ...]) -> list[Place]:
    return list(
        dict.fromkeys(
            Place(occasion, attack, rule, m, participants(mode, m))
            for occasion, mode, attack, m, rule in product(OCCASIONS, MODES, ATTACKS, shared, RULES)
        )
    )
