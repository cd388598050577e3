"""Verdicts computed from checks: a claim holds, holds only under a condition found in the data, or does not."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.data import FloatArray

HOLDS, CONDITIONAL, FAILS = "holds", "holds only if", "does not hold"

_DECIBELS_PER_NEPER = 10 / math.log(10)


@dataclass(frozen=True)
class Difference:
    """A difference in decibels with its standard error (0 where no chance is involved)."""

    decibels: float
    standard_error: float = 0.0

    @property
    def is_positive(self) -> bool:
        """Whether it is above zero by more than two standard errors."""
        return self.decibels > 2 * self.standard_error

    @property
    def is_negative(self) -> bool:
        """Whether it is below zero by more than two standard errors."""
        return self.decibels < -2 * self.standard_error

    def is_within(self, tolerance: float) -> bool:
        """Whether it may well be smaller than the tolerance, in either direction."""
        return abs(self.decibels) <= tolerance + 2 * self.standard_error

    def __str__(self) -> str:
        error = f" ± {self.standard_error:.3f}" if self.standard_error else ""
        return f"{self.decibels:+.3f}{error} dB".replace("-", "−")


def paired_difference(first: FloatArray, second: FloatArray) -> Difference:
    """Return how far the mean of `first` lies above that of `second`, of trials on the same draws.

    With means a and b, the difference is 10 log10(a/b); its standard error follows from the trials'
    differences first/a − second/b, in which all that both have in common cancels.

    Examples
    --------
    >>> paired_difference(np.array([2.0, 4.0]), np.array([1.0, 2.0])).standard_error
    0.0
    """
    a, b = float(first.mean()), float(second.mean())
    if not (math.isfinite(a) and math.isfinite(b)):
        return Difference(math.inf if not math.isfinite(a) else -math.inf)
    spread = np.std(first / a - second / b, ddof=1) / math.sqrt(first.size)
    return Difference(10 * math.log10(a / b), _DECIBELS_PER_NEPER * float(spread))


@dataclass(frozen=True)
class Check:
    """One case of a claim.

    Attributes
    ----------
    case : dict
        What distinguishes it from the other cases, say ``{"uplink": "same", "M": 3}``.
    passed : bool
        Whether the claim is true of it.
    finding : str
        The number behind it, with its uncertainty.
    weight : float
        How telling it is; of many cases the one with the lowest is quoted first.
    """

    case: dict[str, Any]
    passed: bool
    finding: str
    weight: float = 0.0


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what became of it.

    Attributes
    ----------
    statement, source : str
        What is claimed, in our words, and where.
    figures : tuple of str
        The figures that the checks are made of.
    criterion : str
        When a case counts as true.
    checks : tuple of Check
        All cases.
    """

    statement: str
    source: str
    figures: tuple[str, ...]
    criterion: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> str:
        """``"holds"``, ``"holds only if"`` or ``"does not hold"``."""
        passed = [check.passed for check in self.checks]
        return HOLDS if all(passed) else CONDITIONAL if any(passed) else FAILS

    @property
    def condition(self) -> str:
        """Under which the claim holds, if it holds only under one."""
        return explain(self.checks) if self.verdict == CONDITIONAL else ""

    @property
    def evidence(self) -> list[str]:
        """The most telling findings: the weakest of the cases that pass, the worst of those that fail."""
        passing = sorted((c for c in self.checks if c.passed), key=lambda c: c.weight)
        failing = sorted((c for c in self.checks if not c.passed), key=lambda c: c.weight)
        lines = [f"{len(passing)} of {len(self.checks)} cases"]
        if passing:
            lines.append(f"weakest that passes: {describe_case(passing[0].case)}: {passing[0].finding}")
        if failing:
            lines.append(f"worst that fails: {describe_case(failing[0].case)}: {failing[0].finding}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
        return {
            "claim": self.statement,
            "source": self.source,
            "figures": list(self.figures),
            "criterion": self.criterion,
            "verdict": self.verdict,
            "condition": self.condition,
            "evidence": self.evidence,
            "checks": [
                {"case": check.case, "passed": check.passed, "finding": check.finding} for check in self.checks
            ],
        }


def explain(checks: Sequence[Check]) -> str:
    """Find what tells the passing cases from the failing ones, with as few factors as possible.

    Examples
    --------
    >>> checks = [Check({"uplink": u, "M": m}, u == "redrawn" or m == 1, "") for u in ("same", "redrawn") for m in (1, 5)]
    >>> explain(checks)
    'uplink is redrawn or M = 1'
    """
    factors = list(dict.fromkeys(factor for check in checks for factor in check.case))
    passing = [check.case for check in checks if check.passed]
    failing = [check.case for check in checks if not check.passed]
    for size in (1, 2):
        for chosen in itertools.combinations(factors, size):
            for combine, word in ((all, " and "), (any, " or ")):
                allowed = [_allowed(factor, passing, failing, combine is any) for factor in chosen]
                if any(values is None for values in allowed):
                    continue
                tests = list(zip(chosen, allowed, strict=True))
                separates = all(
                    combine(case.get(f) in values for f, values in tests if values is not None) == check.passed
                    for check in checks
                    for case in (check.case,)
                )
                if separates:
                    return word.join(_describe_values(f, values or set(), checks) for f, values in tests)
    return "not " + "; not ".join(describe_case(case) for case in failing)


def describe_case(case: dict[str, Any]) -> str:
    """Write a case as text."""
    return ", ".join(_equation(factor, value) for factor, value in case.items()) or "the only case"


def _allowed(factor: str, passing: list[dict[str, Any]], failing: list[dict[str, Any]], sufficient: bool) -> set[Any] | None:
    """Values of a factor that never fail (if they are to suffice) or that ever pass (if all must be met)."""
    passed, failed = {case.get(factor) for case in passing}, {case.get(factor) for case in failing}
    values = passed - failed if sufficient else passed
    everything = passed | failed
    return values if values and values != everything else None


def _describe_values(factor: str, values: Iterable[Any], checks: Sequence[Check]) -> str:
    found = set(values)
    everything = {check.case.get(factor) for check in checks}
    if all(isinstance(value, int | float) for value in everything):
        ordered = sorted(everything)
        if len(found) > 1 and found == set(ordered[-len(found) :]):
            return f"{factor} ≥ {min(found)}"
        if len(found) > 1 and found == set(ordered[: len(found)]):
            return f"{factor} ≤ {max(found)}"
    outside = everything - found
    if len(outside) == 1 and len(found) > 1:
        return f"{factor} is not {next(iter(outside))}"
    if len(found) == 1:
        return _equation(factor, next(iter(found)))
    return f"{factor} is one of {', '.join(str(value) for value in sorted(found, key=str))}"


def _equation(factor: str, value: Any) -> str:
    return f"{factor} {'is' if isinstance(value, str) else '='} {value}"
