"""Actions of a defence in a simulation: which clients were excluded, when, for how long, and whether by mistake."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.render.numbers import percent
from psofed.results.dataset import Stored

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


_PLACES = ("trial", "client")
DEFENCE_ARRAYS = (
    Stored("first", "first_excluded_at", _PLACES, "iteration of the first exclusion, or -1", "iterations", "i"),
    Stored("exclusions", "exclusions", _PLACES, "how often the client was left out", kind="i"),
    Stored("time_out", "iterations_excluded", _PLACES, "iterations without the client", "iterations", "i"),
)


@dataclass(frozen=True, eq=False)
class DefenceRecord:
    """Who was excluded when.

    A Byzantine client is *found* when it is first left out, after a delay since the start; leaving out another is a
    *false alarm*. Where the Byzantine set is redrawn in every iteration everybody counts as Byzantine.

    Attributes
    ----------
    threshold : float
        Of the suspicion.
    variance : str
        ``"theory"``, ``"estimated"`` or ``"past"``: where the variance of honest residuals comes from.
    iterations : int
        Length of the run.
    is_byzantine : bool array (K,)
        Who can attack.
    first : int array (trials, K)
        Iteration in which a client was first left out, −1 if never.
    exclusions : int array (trials, K)
        How often it was left out.
    time_out : int array (trials, K)
        For how many iterations in all.
    """

    threshold: float
    variance: str
    iterations: int
    is_byzantine: NDArray[np.bool_]
    first: NDArray[np.int64]
    exclusions: NDArray[np.int64]
    time_out: NDArray[np.int64]

    @staticmethod
    def who_attacks(scenario: "Scenario", fleet: "Fleet") -> NDArray[np.bool_]:
        """Return who can attack, shape (K,)."""
        attack = scenario.attack
        if attack is not None and attack.byzantine_set == "redrawn":
            return np.full(fleet.num_clients, attack.num_byzantine > 0)
        return fleet.byzantine_mask(attack)

    @property
    def found(self) -> float:
        """Share of Byzantine clients that were found, over all trials; NaN if there are none."""
        return _mean(self.first[:, self.is_byzantine] >= 0)

    @property
    def median_delay(self) -> float:
        """Median over Byzantine clients and trials of the iteration they were found in; infinite if most were not."""
        delays = self.first[:, self.is_byzantine].astype(np.float64)
        delays[delays < 0] = np.inf
        return float(np.sort(delays, axis=None)[(delays.size - 1) // 2]) if delays.size else np.nan

    @property
    def false_alarms(self) -> FloatArray:
        """False alarms of each trial, shape (trials,)."""
        return np.asarray(self.exclusions[:, ~self.is_byzantine].sum(axis=1), dtype=np.float64)

    @property
    def iterations_per_false_alarm(self) -> float:
        """How many iterations there were for each false alarm, over all trials; infinite without any."""
        total = float(self.false_alarms.sum())
        return self.iterations * len(self.first) / total if total else np.inf

    @property
    def byzantine_time_out(self) -> float:
        """Share of all iterations that Byzantine clients were left out for."""
        return _mean(self.time_out[:, self.is_byzantine]) / self.iterations

    @property
    def honest_time_out(self) -> float:
        """Share of all iterations that honest clients were left out for."""
        return _mean(self.time_out[:, ~self.is_byzantine]) / self.iterations

    @property
    def summary(self) -> dict[str, float]:
        """Summary over all trials, by name."""
        names = ("found", "median_delay", "iterations_per_false_alarm", "byzantine_time_out", "honest_time_out")
        return {"false_alarms": float(self.false_alarms.sum())} | {name: getattr(self, name) for name in names}

    def describe(self) -> str:
        """Say it in a sentence or two."""
        every = self.iterations_per_false_alarm
        alarms = (
            "no false alarms"
            if np.isinf(every)
            else f"one false alarm per {every:,.0f} iterations, "
            f"honest clients excluded {percent(self.honest_time_out, 2)} of the time"
        )
        if not self.is_byzantine.any():
            return f"Defence: {alarms}."
        delay = f"half of them by iteration {self.median_delay:.0f}" if np.isfinite(self.median_delay) else ""
        found = f"found {percent(self.found)} of the Byzantine clients{', ' + delay if delay else ''}"
        return f"Defence: {found}; {alarms}."

    def to_json(self) -> dict[str, Any]:
        """Return plain values; arrays are means over the trials, by client."""
        ever = self.first >= 0
        with np.errstate(invalid="ignore"):
            first = np.where(ever, self.first, 0).sum(axis=0) / np.where(ever.any(axis=0), ever.sum(axis=0), np.nan)
        return {
            "threshold": self.threshold,
            "variance": self.variance,
            **self.summary,
            "clients": {
                "excluded_share_of_trials": ever.mean(axis=0).tolist(),
                "mean_first_excluded": first.tolist(),
                "time_out": (self.time_out.mean(axis=0) / self.iterations).tolist(),
            },
        }


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values)) if values.size else np.nan
