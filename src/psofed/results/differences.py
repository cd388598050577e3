"""How far two results lie apart, metric by metric, and whether their trials are pairs on equal draws."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.types import FloatArray
from psofed.results.difference_words import describe_difference, difference_text, interval_text, signed
from psofed.results.metric_difference import (
    MetricDifference,
    pair_decibels,
    paired_difference,
    unpaired_difference,
)
from psofed.results.metrics import ALL_TITLES, METRIC_TITLES

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from psofed.results.simulation import SimulationResult


@dataclass(frozen=True, eq=False)
class Difference:
    """All metrics of one result less those of another (:func:`psofed.difference`, or ``a - b``).

    Attributes
    ----------
    network_mse, server_msd, test_mse : MetricDifference
    paired : bool
        Whether trials are pairs on equal draws.
    trials : (int, int)
        How many of each result were used.
    reasons : tuple of str
        Why they are not pairs.
    """

    metrics: dict[str, MetricDifference]
    paired: bool
    trials: tuple[int, int]
    reasons: tuple[str, ...] = ()
    _values: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False)

    @property
    def network_mse(self) -> MetricDifference:
        """Of the MSE over all clients."""
        return self.metrics["network_mse"]

    @property
    def server_msd(self) -> MetricDifference:
        """Of the server's MSD."""
        return self.metrics["server_msd"]

    @property
    def test_mse(self) -> MetricDifference:
        """Of the server's test MSE."""
        return self.metrics["test_mse"]

    def __getitem__(self, metric: str) -> MetricDifference:
        return self.metrics[metric]

    def describe(
        self, metric: str = "network_mse", first: str = "the first", second: str = "the second"
    ) -> str:
        """Say it in one sentence."""
        return describe_difference(self.metrics[metric], ALL_TITLES[metric], first, second, self._basis())

    def summary(self) -> str:
        """Return a sentence per metric, and what the pairs are."""
        lines = [describe_difference(found, ALL_TITLES[metric]) for metric, found in self.metrics.items()]
        return "\n".join([*lines, self._basis()[0].upper() + self._basis()[1:] + "."])

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            **{metric: found.to_json() for metric, found in self.metrics.items()},
            "paired": self.paired,
            "trials": list(self.trials),
            "not_paired_because": list(self.reasons),
        }

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a row per metric."""
        import pandas

        rows = []
        for metric, found in self.metrics.items():
            row = {
                "metric": metric,
                "db": found.decibels,
                "low_db": found.interval[0],
                "high_db": found.interval[1],
            }
            low, high = found.percent_interval
            row |= {"percent": found.percent, "low_percent": low, "high_percent": high}
            rows.append(row | {"statistic": found.statistic, "significant": found.is_significant})
        return pandas.DataFrame(rows)

    def plot(self, metric: str = "network_mse") -> "Figure":
        """Draw every pair's difference in dB, in order, with the estimate and its interval."""
        from psofed.results.show import draw

        return draw("difference.plot_difference", self, metric)

    def pairs(self, metric: str = "network_mse") -> FloatArray:
        """Return 10 log₁₀(a_i/b_i) of every pair; infinite where one diverged, NaN where both did."""
        if not self.paired:
            raise PsofedError(f"no pairs: {'; '.join(self.reasons)}")
        return pair_decibels(*self._values[metric])

    def _basis(self) -> str:
        if self.paired:
            return f"{self.trials[0]} pairs of trials on equal draws"
        return f"not paired, {self.trials[0]} and {self.trials[1]} trials: {'; '.join(self.reasons)}"

    def __repr__(self) -> str:
        return f"Difference({self._basis()})\n" + "\n".join(
            f"  {ALL_TITLES[metric]:12} {difference_text(found)}" for metric, found in self.metrics.items()
        )

    def _repr_html_(self) -> str:
        from psofed.results.show import html_card

        rows = [
            (
                ALL_TITLES[metric],
                f"{signed(found.decibels)} dB",
                interval_text(found),
                f"{found.percent:+.1f} %",
                found.statistic,
            )
            for metric, found in self.metrics.items()
        ]
        head = ("", "difference", "95 % interval", "in per cent", "of")
        return html_card("Difference", head, rows, (self._basis(),), self.plot if self.paired else None)


def difference(a: "SimulationResult", b: "SimulationResult", paired: bool | None = None) -> Difference:
    """Compare two simulations: by how much `a` lies above (+) or below (−) `b`, in dB and per cent, with interval.

    Parameters
    ----------
    a, b : SimulationResult
        Of any two scenarios. Equal seeds and fleets make the trials pairs on equal draws.
    paired : bool, optional
        True refuses results that are not pairs, by name; False takes them as unrelated; by default pairs are used
        where there are some, and otherwise :attr:`Difference.reasons` says why not.

    Returns
    -------
    Difference

    Examples
    --------
    >>> from psofed import Scenario, simulate
    >>> from psofed.attacks import Gaussian
    >>> fleet = Scenario(num_clients=10, dimension=4, iterations=300, attack=Gaussian(num_byzantine=3))
    >>> few, all_ = (simulate(fleet.replace(num_shared=m), trials=24) for m in (1, 4))
    >>> found = difference(few, all_)
    >>> found.paired, found.network_mse.is_significant, found.network_mse.decibels < 0
    (True, True, True)
    """
    from psofed.results.simulation import SimulationResult

    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, SimulationResult):
            raise InvalidValueError(name, value, "a psofed.SimulationResult, as psofed.simulate returns")
    reasons = why_not_paired(a, b) if paired is not False else ("as asked",)
    if paired and reasons:
        raise PsofedError(f"these results are not pairs: {'; '.join(reasons)}")
    metrics, values = {}, {}
    common = min(a.trials, b.trials)
    moved = [metric for metric in a.evasion or {} if metric in (b.evasion or {})]
    for metric in (*METRIC_TITLES, *moved):
        first, second = ({**x.steady_state, **(x.evasion or {})}[metric] for x in (a, b))
        if reasons:
            metrics[metric] = unpaired_difference(first, second)
        else:
            # Trials have numbers: those that both have are pairs.
            values[metric] = first[:common], second[:common]
            metrics[metric] = paired_difference(*values[metric])
    trials = (a.trials, b.trials) if reasons else (common, common)
    return Difference(metrics, not reasons, trials, tuple(reasons), values)


def why_not_paired(a: "SimulationResult", b: "SimulationResult") -> tuple[str, ...]:
    """Return what keeps trials from being pairs on equal draws; nothing if they are."""
    reasons = []
    if a.seed != b.seed:
        reasons.append(f"seeds {a.seed} and {b.seed} differ")
    for name, title in (("num_clients", "clients"), ("dimension", "entries")):
        first, second = getattr(a.scenario, name), getattr(b.scenario, name)
        if first != second:
            reasons.append(f"{first} and {second} {title}")
    if ("data" in a.details) != ("data" in b.details):
        reasons.append("one has data of its own, the other a drawn fleet")
    elif "data" not in a.details and a.scenario.data != b.scenario.data:
        names = [
            f"data.{name}"
            for name in type(a.scenario.data).__dataclass_fields__
            if getattr(a.scenario.data, name) != getattr(b.scenario.data, name)
        ]
        reasons.append(f"{' and '.join(names)} differ")
    if not reasons:
        for name, title in (("input_variance", "inputs"), ("noise_variance", "noise"), ("target", "targets")):
            if not np.array_equal(getattr(a.fleet, name), getattr(b.fleet, name)):
                reasons.append(f"the fleets' {title} differ")
    return tuple(reasons)
