"""How any model's arrays become one vector and back.

The floating arrays of a model, in their order, form one vector that is shared in parts. Arrays of any
other kind (say the integer counters of PyTorch's batch normalisation) stay where they are: each side
keeps its own. So do arrays that are left out by name.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.federation.protocol.frames import DTYPES

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

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        return {"features": list(self.features), "target": self.target}

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


MAX_LAYOUT = 1 << 21  # characters of a layout

Vector = NDArray[Any]
Arrays = Mapping[str, NDArray[Any]]
"""A model's arrays by name."""


@dataclass(frozen=True)
class ModelLayout:
    """Names, shapes and types of a model's arrays; the floating ones make up the shared vector.

    Parameters
    ----------
    names, shapes, dtypes : tuple
        Of all arrays.
    private : tuple of str
        Floating arrays that are not shared.
    columns : ColumnNames or None
        Names of the data's columns, for a model whose entries belong to them; None if they have none.

    Examples
    --------
    >>> layout = ModelLayout.of({"a": np.ones((2, 3), np.float32), "n": np.array(7)})
    >>> layout.dimension, layout.dtype
    (6, dtype('float32'))
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    private: tuple[str, ...] = ()
    columns: ColumnNames | None = None

    @classmethod
    def of(cls, arrays: Arrays, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()) -> Self:
        """Return the layout of a model's arrays; `include` and `exclude` are patterns of names (``fnmatch``)."""
        names = tuple(arrays)
        for pattern in (*include, *exclude):
            if names and not any(fnmatchcase(name, pattern) for name in names):
                allowed = f"a pattern that some array's name matches: {_few(names)}"
                raise InvalidValueError("include or exclude", pattern, allowed)

        def is_shared(name: str) -> bool:
            included, excluded = (any(fnmatchcase(name, p) for p in patterns) for patterns in (include, exclude))
            return included and not excluded

        shapes = tuple(array.shape for array in arrays.values())
        dtypes = tuple(str(array.dtype) for array in arrays.values())
        floating = [name for name, array in arrays.items() if array.dtype.kind in "fc"]
        layout = cls(names, shapes, dtypes, private=tuple(name for name in floating if not is_shared(name)))
        if layout.dimension == 0:
            allowed = "at least one floating number to share"
            raise InvalidValueError("initial model", f"{len(arrays)} arrays", allowed)
        unknown = [name for name in layout.shared_dtypes if name not in DTYPES]
        if unknown:
            raise InvalidValueError("initial model", unknown[0], "arrays of " + ", ".join(DTYPES))
        return layout

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what :attr:`text` holds; any mistake in it raises ValueError."""
        if len(text) > MAX_LAYOUT:
            raise ValueError("not a layout: too long")
        try:
            document = json.loads(text)
            columns = ColumnNames.from_mapping(document["columns"]) if "columns" in document else None
            names, lengths, types = zip(*document["arrays"], strict=True) if document["arrays"] else ((), (), ())
            shapes = tuple(tuple(map(int, shape)) for shape in lengths)
            names, dtypes = tuple(map(str, names)), tuple(str(np.dtype(kind)) for kind in types)
            private = tuple(map(str, document["private"]))
        except (TypeError, ValueError, KeyError, RecursionError, OverflowError) as error:
            raise ValueError(f"not a layout: {error}") from None
        if any(side < 0 for shape in shapes for side in shape) or len(set(names)) != len(names):
            raise ValueError("not a layout: negative sizes or repeated names")
        if any(np.dtype(dtype).kind not in "biufc" for dtype in dtypes):
            raise ValueError("not a layout: arrays of something else than numbers")
        layout = cls(names, shapes, dtypes, private, columns)
        if not layout.dimension or any(name not in DTYPES for name in layout.shared_dtypes):
            raise ValueError("not a layout: nothing to share, or numbers of a type that is not shared")
        return layout

    @cached_property
    def text(self) -> str:
        """The layout as one line of JSON."""
        rows = [list(row) for row in zip(self.names, self.shapes, self.dtypes, strict=True)]
        document: dict[str, Any] = {"arrays": rows, "private": list(self.private)}
        if self.columns is not None:
            document["columns"] = self.columns.to_mapping()
        return json.dumps(document, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """Eight bytes of BLAKE2b over the text, so that both sides can tell that they mean the same."""
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest()

    @cached_property
    def shared_dtypes(self) -> tuple[str, ...]:
        """Types of the arrays that are shared."""
        return tuple(sorted({str(dtype) for _, _, dtype, is_shared in self._rows if is_shared}))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the shared vector: the widest of the shared arrays'."""
        return np.result_type(*self.shared_dtypes)

    @cached_property
    def dimension(self) -> int:
        """D, the length of the shared vector."""
        return sum(math.prod(shape) for _, shape, _, is_shared in self._rows if is_shared)

    @cached_property
    def entries(self) -> int:
        """Entries of all arrays, shared or not; an empty array counts its longest side."""
        return sum(math.prod(shape) or max(shape, default=1) for shape in self.shapes)

    def flatten(self, arrays: Arrays) -> Vector:
        """Return the shared vector (D,) of `arrays`, which nobody may change; ValueError if they do not fit."""
        if arrays.keys() != set(self.names):
            raise ValueError(f"arrays are named {_few(tuple(arrays))}, not {_few(self.names)}")
        parts = []
        for name, shape, _, is_shared in self._rows:
            if not is_shared:
                continue
            if arrays[name].shape != shape:
                raise ValueError(f"array {name!r} has shape {arrays[name].shape}, not {shape}")
            parts.append(np.asarray(arrays[name], dtype=self.dtype).ravel())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def restore(self, vector: Vector, private: Arrays | None = None) -> dict[str, NDArray[Any]]:
        """Return a model's arrays from the shared vector and, where not shared, from `private` (or zeros)."""
        arrays: dict[str, NDArray[Any]] = {}
        start = 0
        for name, shape, dtype, is_shared in self._rows:
            if is_shared:
                end = start + math.prod(shape)
                arrays[name] = np.array(vector[start:end], dtype=dtype).reshape(shape)
                start = end
            elif private is not None and name in private:
                arrays[name] = private[name]
            else:
                arrays[name] = np.zeros(shape, dtype=dtype)
        return arrays

    def kept(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return those of `arrays` that are not shared."""
        private = [name for name, _, _, is_shared in self._rows if not is_shared]
        return {name: arrays[name] for name in private if name in arrays}

    @cached_property
    def _rows(self) -> list[tuple[str, tuple[int, ...], np.dtype[Any], bool]]:
        """Name, shape and type of every array, and whether it is shared."""
        dtypes = [np.dtype(dtype) for dtype in self.dtypes]
        is_shared = [t.kind in "fc" and name not in self.private for name, t in zip(self.names, dtypes, strict=True)]
        return list(zip(self.names, self.shapes, dtypes, is_shared, strict=True))


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
