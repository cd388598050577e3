"""One cell of a sweep: a scenario simulated with some trials and a seed, on whatever machine."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed._version import __version__
from psofed.common.fingerprint import class_digest, source_digest
from psofed.common.types import ProgressCallback
from psofed.parts.base import Metric
from psofed.results import Estimate, estimate, find_unsteady
from psofed.results.estimates import CONFIDENCE
from psofed.results.metrics import HONEST
from psofed.scenario import Scenario
from psofed.settings.simulation import SimulationSettings

# Packages that cannot change the result of a simulation. All others count, so a new package is never forgotten.
_BYSTANDERS = ("cli", "explore", "federation", "paper", "render", "results/reports", "studies", "testing", "theory")


@dataclass(frozen=True)
class Cell:
    """One simulation of a sweep: everything that determines its result.

    An attack that never happens (no Byzantine client, probability 0) is left out, so that all such cells are one.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian
    >>> quiet = Scenario(num_clients=10, dimension=3, attack=Gaussian(num_byzantine=0))
    >>> Cell(quiet, trials=4) == Cell(quiet.replace(attack=None), trials=4)
    True
    """

    scenario: Scenario
    trials: int
    seed: int = 0
    tail: float = 0.2
    metrics: tuple[str | Metric, ...] = ()
    precision: float | None = None

    def __post_init__(self) -> None:
        attack = self.scenario.attack
        if attack is not None and attack.is_idle:
            object.__setattr__(self, "scenario", self.scenario.replace(attack=None))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The scenario as plain values; of a table its content counts, not where it lies."""
        mapping = self.scenario.to_mapping()
        if self.scenario.data.rows is not None:
            mapping["data"] = {"digest": self.scenario.data.rows.digest}
        return mapping

    @cached_property
    def key(self) -> str:
        """Digest of the cell, of the code of its parts, of psofed's version and of the engine's sources."""
        parts = [class_digest(type(part)) for part in self.scenario.parts()]
        metrics = [m if isinstance(m, str) else [m.to_mapping(), class_digest(type(m))] for m in self.metrics]
        code = [__version__, engine_digest()]
        if self.scenario.defence is not None:  # it measures by what theory says of honest clients
            code.append(source_digest("theory"))
        settings = [self.trials, self.seed, self.tail, self.precision]
        text = json.dumps([self.identity, parts, settings, metrics, *code], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def cost(self) -> int:
        """Client updates to be simulated."""
        return self.scenario.num_clients * self.scenario.iterations * self.trials


@dataclass(frozen=True, eq=False)
class CellResult:
    """Result of a cell, small enough to send between processes and to store by the thousand.

    Attributes
    ----------
    steady_state, tail_change : dict of arrays (trials,)
        By metric, as in :class:`psofed.results.SimulationResult`.
    diverged_at : array (trials,)
        Iteration in which a trial was seen to diverge, or −1.
    engine : str
        Digest of the sources that computed it.
    seconds : float
        How long it took; the one thing that differs from run to run.
    notes : tuple of str
        What should be known of how it was computed.
    defence : dict
        What a defence came to, by :attr:`psofed.results.DefenceRecord.summary`; empty without one.
    confidence : float
        Of its intervals: more than 95 % where trials stopped at a precision (:class:`psofed.results.Stopping`).
    """

    steady_state: dict[str, NDArray[np.float64]]
    tail_change: dict[str, NDArray[np.float64]]
    diverged_at: NDArray[np.int64]
    engine: str
    seconds: float = field(compare=False)
    notes: tuple[str, ...] = ()
    defence: dict[str, float] = field(default_factory=dict)
    confidence: float = CONFIDENCE

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "CellResult":
        """Return the result whose :meth:`to_plain` this is; any exception if it is forged."""
        diverged_at, trials = np.array(plain["diverged_at"]), (len(plain["diverged_at"]),)
        levels, changes = (
            {str(metric): np.array(values, np.float64) for metric, values in plain[name].items()}
            for name in ("steady_state", "tail_change")
        )
        shapes = {values.shape for values in (diverged_at, *levels.values(), *changes.values())}
        if shapes != {trials} or diverged_at.dtype != np.int64 or levels.keys() != changes.keys():
            raise ValueError(f"shapes are {shapes}, expected {trials} for each metric")
        defence = {str(name): float(value) for name, value in plain["defence"].items()}
        engine, notes = str(plain["engine"]), tuple(map(str, plain["notes"]))
        return cls(
            levels, changes, diverged_at, engine, float(plain["seconds"]), notes, defence, float(plain["confidence"])
        )

    def to_plain(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON with its infinities."""
        arrays = {"steady_state": self.steady_state, "tail_change": self.tail_change}
        return {
            **{name: getattr(self, name) for name in ("engine", "seconds", "notes", "defence", "confidence")},
            **{name: {metric: v.tolist() for metric, v in of.items()} for name, of in arrays.items()},
            "diverged_at": self.diverged_at.tolist(),
        }

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.diverged_at)

    def values(self, metric: str) -> NDArray[np.float64]:
        """Return a metric's steady state in every trial; without Byzantine clients all clients are honest."""
        return self.steady_state["network_mse" if metric not in self.steady_state else metric]

    def change(self, metric: str) -> NDArray[np.float64]:
        """Return by how much a metric changes over the tail in every trial."""
        return self.tail_change["network_mse" if metric not in self.tail_change else metric]

    def estimate(self, metric: str) -> Estimate:
        """Mean and standard error of a metric's steady state over the trials."""
        return estimate(self.values(metric), self.confidence)

    @property
    def num_diverged(self) -> int:
        """Trials that diverged."""
        return int((self.diverged_at >= 0).sum())

    @property
    def unsteady_metrics(self) -> dict[str, float]:
        """Metrics that still change over the tail, with the relative change."""
        return find_unsteady(self.steady_state, self.tail_change)


def compute_cell(cell: Cell, progress: ProgressCallback | None = None) -> CellResult:
    """Simulate a cell on one thread; the bits depend on the cell alone.

    Examples
    --------
    >>> cell = Cell(Scenario(num_clients=6, dimension=2, iterations=50), trials=3)
    >>> from psofed.common.equality import same_values
    >>> same_values(compute_cell(cell), compute_cell(cell))
    True
    """
    from psofed.simulation.monte_carlo import run_trials

    how = {"tail": cell.tail, "metrics": cell.metrics, "precision": cell.precision}
    settings = SimulationSettings(cell.trials, cell.seed, threads=1, progress=progress, **how)
    result = run_trials(cell.scenario, settings)
    unmeasured = {}  # nobody is honest, or the fleet is too large to measure it without being asked
    if cell.scenario.num_byzantine and HONEST not in result.steady_state:
        unmeasured[HONEST] = np.full(result.trials, np.nan)
    return CellResult(
        steady_state=result.steady_state | unmeasured,
        tail_change=result.tail_change | unmeasured,
        diverged_at=result.diverged_at,
        engine=engine_digest(),
        seconds=result.seconds,
        notes=result.notes,
        defence={} if result.defence is None else result.defence.summary,
        confidence=CONFIDENCE if result.stopping is None else result.stopping.confidence,
    )


def engine_digest() -> str:
    """Return a digest of the sources that decide a simulation's bits: of all packages but a few bystanders."""
    return source_digest(without=_BYSTANDERS)
