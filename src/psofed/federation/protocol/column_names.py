"""Names of the columns that a run learns from: the run sets them, and every node finds its columns by name."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from psofed.common.errors import InvalidValueError, PsofedError

MAX_COLUMNS = 20_000
MAX_NAME = 200  # characters
MAX_TEXT = 1 << 20  # characters of all names


@dataclass(frozen=True)
class ColumnNames:
    """Features and target of a run, in the order of the model's entries.

    Parameters
    ----------
    features : tuple of str
        Entry i of the model belongs to ``features[i]``.
    target : str
        The column to predict.

    Examples
    --------
    >>> str(ColumnNames(("wind", "pressure"), "output"))
    'wind, pressure → output'
    >>> ColumnNames(("wind", "wind"), "output")
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: features must be names that differ from each other and from the target; \
got 'wind'.
    """

    features: tuple[str, ...]
    target: str

    def __post_init__(self) -> None:
        names = (*self.features, self.target)
        if not 2 <= len(names) <= MAX_COLUMNS + 1:
            raise InvalidValueError("features", len(self.features), f"1 to {MAX_COLUMNS:,} names")
        for text in names:
            if not isinstance(text, str) or len(text) > MAX_NAME or not text.isprintable():
                allowed = f"printable names of at most {MAX_NAME} characters"
                raise InvalidValueError("columns", str(text)[:40], allowed)
        if not all(name and name == name.strip() for name in names):
            raise InvalidValueError("columns", "", "names that neither are empty nor begin or end with a space")
        if sum(map(len, names)) > MAX_TEXT:
            raise InvalidValueError("columns", "longer ones", f"names of {MAX_TEXT:,} characters in all")
        twice, times = Counter(names).most_common(1)[0]
        if times > 1:
            raise InvalidValueError("features", twice, "names that differ from each other and from the target")

    @classmethod
    def of_user(cls, features: Sequence[str], target: str | None) -> Self | None:
        """Return the names that a user has set; None if there are none."""
        if not features and target is None:
            return None
        if not features or target is None:
            present, missing = ("features", "target-column") if features else ("target-column", "features")
            raise PsofedError(f"--{present} names only some of the run's columns: add --{missing}")
        return cls(tuple(features), target)

    @classmethod
    def from_mapping(cls, mapping: Any) -> Self:
        """Read what :meth:`to_mapping` gave; any mistake in it raises ValueError."""
        try:
            features, target = mapping["features"], mapping["target"]
            if not isinstance(features, list) or len(features) > MAX_COLUMNS:
                raise ValueError("not a list of names, or too long")
            return cls(tuple(features), target)
        except (TypeError, ValueError, KeyError, AttributeError, PsofedError) as error:
            raise ValueError(f"not the names of columns: {error}") from None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what :meth:`to_text` gave; any mistake in it raises ValueError."""
        if len(text) > 2 * MAX_TEXT:
            raise ValueError("not the names of columns: too long")
        try:
            return cls.from_mapping(json.loads(text))
        except RecursionError:
            raise ValueError("not the names of columns: nested too deeply") from None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        return {"features": list(self.features), "target": self.target}

    def to_text(self) -> str:
        """Return the names as one line of JSON."""
        return json.dumps(self.to_mapping(), separators=(",", ":"))

    def check_same(self, features: Sequence[str], target: str, who: str) -> None:
        """Raise PsofedError if these are other columns, in whatever order; `who` begins the sentence."""
        asked, present = set(self.features), set(features)
        if lacking := [name for name in self.features if name not in present]:
            raise PsofedError(f"{who} lacks {listed(lacking)}; the run's columns are {self}")
        if unknown := [name for name in features if name not in asked]:
            raise PsofedError(f"{who} has {listed(unknown)}, unknown to the run; its columns are {self}")
        if target != self.target:
            raise PsofedError(f"{who} predicts {target}; the run's columns are {self}")

    def __str__(self) -> str:
        return f"{listed(self.features)} → {self.target}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return names for a sentence, the first `most` of them.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b, … (3 in all)'
    """
    return ", ".join(names[:most]) + (f", … ({len(names)} in all)" if len(names) > most else "")
