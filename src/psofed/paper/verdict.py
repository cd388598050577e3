"""Verdicts computed from checks: a claim holds, holds only under a condition found in the data, or does not."""

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.render.numbers import fixed
from psofed.results.metric_difference import ratio_of_means

HOLDS, CONDITIONAL, FAILS, UNDECIDED = "holds", "holds only if", "does not hold", "undecided"

_OPPOSITES = {"above": "below", "rises": "falls", "falls": "rises", "grows": "shrinks"}


@dataclass(frozen=True)
class DecibelDifference:
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
        return f"{fixed(self.decibels, 3, signed=True)}{error} dB"

    def after(self, words: str) -> str:
        """Return words that say which way it goes and the size, with the opposite words for a negative one.

        Examples
        --------
        >>> DecibelDifference(-0.5, 0.1).after("M = 5 above M = 1 by"), DecibelDifference(2.0).after("it falls by")
        ('M = 5 below M = 1 by 0.500 ± 0.100 dB', 'it falls by 2.000 dB')
        """
        size = DecibelDifference(abs(self.decibels), self.standard_error)
        if self.decibels < 0:
            words = " ".join(_OPPOSITES.get(word, word) for word in words.split())
        return f"{words} {str(size).removeprefix('+')}"


def paired_difference(first: FloatArray, second: FloatArray) -> DecibelDifference:
    """Return how far the mean of `first` lies above that of `second`, of trials on the same draws."""
    for values, lost in ((first, math.inf), (second, -math.inf)):
        if not np.isfinite(values).all():
            return DecibelDifference(lost)
    return DecibelDifference(*ratio_of_means(first, second))


@dataclass(frozen=True)
class Check:
    """One case of a claim.

    Attributes
    ----------
    case : dict
        What distinguishes it from the other cases, say ``{"uplink": "same", "M": 3}``.
    passed : bool or None
        Whether the claim holds for it; None if the simulation's noise leaves it open.
    finding : str
        The number behind it, with its uncertainty.
    weight : float
        How telling it is; of many cases the one with the lowest is quoted first.
    """

    case: dict[str, Any]
    passed: bool | None
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
        """``"holds"``, ``"holds only if"``, ``"does not hold"``; ``"undecided"`` if noise leaves all cases open."""
        decided = {check.passed for check in self.checks} - {None}
        if not decided:
            return UNDECIDED
        return CONDITIONAL if len(decided) > 1 else HOLDS if True in decided else FAILS

    @functools.cached_property
    def condition(self) -> str:
        """Under which the claim holds, if it holds only under one."""
        return explain(self.checks) if self.verdict == CONDITIONAL else ""

    @property
    def evidence(self) -> list[str]:
        """The most telling findings: the weakest of the cases that pass, the worst of those that fail."""
        by_outcome = {
            outcome: sorted((c for c in self.checks if c.passed is outcome), key=lambda c: c.weight)
            for outcome in (True, False, None)
        }
        count = len(self.checks)
        lines = [f"holds in {len(by_outcome[True])} of {count} cases"] if count > 1 else []
        if by_outcome[None]:
            lines[0] += f", {len(by_outcome[None])} within noise"
        for outcome, title in ((True, "weakest case that passes"), (False, "worst case that fails")):
            if by_outcome[outcome]:
                check = by_outcome[outcome][0]
                place = f"{title}: {describe_case(check.case)}: " if count > 1 else ""
                lines.append(place + check.finding)
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
                {"case": check.case, "passed": check.passed, "finding": check.finding}
                for check in self.checks
            ],
        }


def explain(checks: Sequence[Check]) -> str:
    """Find the simplest condition on the cases under which the claim holds.

    Conditions are built of statements on one factor (``M ≥ 3``, ``uplink is redrawn``). The best is one that
    tells passing from failing cases, with as few statements as possible; failing that, one that no failing
    case meets and as many passing ones as possible.

    Examples
    --------
    >>> grid = [(u, m) for u in ("same", "redrawn") for m in (1, 3, 5)]
    >>> explain([Check({"uplink": u, "M": m}, u == "redrawn" or m == 1, "") for u, m in grid])
    'uplink is redrawn or M = 1'
    >>> explain([Check({"uplink": u, "M": m}, (u, m) == ("same", 1), "") for u, m in grid])
    'uplink is same and M = 1'
    """
    decided = [check for check in checks if check.passed is not None]
    passing = _mask(check.passed is True for check in decided)
    failing = _mask(check.passed is False for check in decided)
    statements = _statements(decided)
    best, covered = "", 0
    for size in (1, 2, 3):
        for chosen in itertools.combinations(statements, size):
            for word, join in ((" and ", operator.and_), (" or ", operator.or_)):
                met = functools.reduce(join, (mask for _, mask in chosen))
                gain = (met & passing).bit_count()
                if not met & failing and gain > covered:
                    best, covered = word.join(text for text, _ in chosen), gain
        if covered == passing.bit_count():
            return best
    others = len(decided) - covered
    if not covered:
        return "not " + "; not ".join(describe_case(check.case) for check in decided if not check.passed)
    return f"{best} (and in {passing.bit_count() - covered} of {others} other cases)"


def describe_case(case: dict[str, Any]) -> str:
    """Write a case as text."""
    return ", ".join(_equation(factor, value) for factor, value in case.items()) or "the only case"


def _statements(checks: Sequence[Check]) -> list[tuple[str, int]]:
    """Return statements on single factors, each with the set of cases (as bits) that meet it."""
    found: dict[int, str] = {}
    everything = (1 << len(checks)) - 1
    for factor in checks[0].case:
        if not all(factor in check.case for check in checks):
            continue
        values = [check.case[factor] for check in checks]
        distinct = list(dict.fromkeys(values))
        candidates = [(_equation(factor, value), _mask(v == value for v in values)) for value in distinct]
        if all(isinstance(value, int | float) for value in distinct):
            candidates += [(f"{factor} ≥ {value:g}", _mask(v >= value for v in values)) for value in distinct]
            candidates += [(f"{factor} ≤ {value:g}", _mask(v <= value for v in values)) for value in distinct]
        elif len(distinct) > 2:
            candidates += [
                (f"{factor} is not {_quote(str(value))}", _mask(v != value for v in values))
                for value in distinct
            ]
        for text, mask in candidates:
            if mask not in (0, everything):
                found.setdefault(mask, text)
    return [(text, mask) for mask, text in found.items()]


def _mask(flags: Iterable[bool]) -> int:
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def _equation(factor: str, value: Any) -> str:
    return f"{factor} is {_quote(value)}" if isinstance(value, str) else f"{factor} = {value:g}"


def _quote(name: str) -> str:
    return f"“{name}”" if ", " in name else name
