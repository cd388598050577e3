"""How any model's arrays become one vector and back.

The floating arrays of a model, in their order, form one vector that is shared in parts. Arrays of any
other kind (say the integer counters of PyTorch's batch normalisation) stay where they are: each side
keeps its own. So do arrays that are left out by name.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from typing import Any, Self

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.federation.flower import fill
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.npy import HeldArray, values_of

MAX_TEXT = 1 << 24  # characters of a layout
WIRE_DTYPES = ("float16", "float32", "float64")

Vector = NDArray[Any]


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
    >>> from flwr.app import Array
    >>> record = ArrayRecord({"a": Array(np.ones((2, 3), np.float32)), "n": Array(np.array(7))})
    >>> layout = ModelLayout.of(record)
    >>> layout.dimension, layout.dtype
    (6, dtype('float32'))
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    private: tuple[str, ...] = ()
    columns: ColumnNames | None = None

    @classmethod
    def of(cls, arrays: ArrayRecord, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()) -> Self:
        """Return the layout of a model's arrays; `include` and `exclude` are patterns of names (``fnmatch``)."""
        names = tuple(arrays)
        for pattern in (*include, *exclude):
            if names and not any(fnmatchcase(name, pattern) for name in names):
                raise InvalidValueError(
                    "include or exclude", pattern, f"a pattern that some array's name matches: {_few(names)}"
                )
        floating = [name for name, array in arrays.items() if np.dtype(array.dtype).kind in "fc"]
        layout = cls(
            names=names,
            shapes=tuple(tuple(int(side) for side in array.shape) for array in arrays.values()),
            dtypes=tuple(str(np.dtype(array.dtype)) for array in arrays.values()),
            private=tuple(
                name
                for name in floating
                if not any(fnmatchcase(name, pattern) for pattern in include)
                or any(fnmatchcase(name, pattern) for pattern in exclude)
            ),
        )
        if layout.dimension == 0:
            raise InvalidValueError(
                "initial_arrays", f"{len(arrays)} arrays", "at least one floating number to share"
            )
        unknown = [name for name in layout.shared_dtypes if name not in WIRE_DTYPES]
        if unknown:
            raise InvalidValueError("initial_arrays", unknown[0], "arrays of " + ", ".join(WIRE_DTYPES))
        return layout

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what :meth:`to_text` wrote; any mistake in it raises ValueError."""
        if len(text) > MAX_TEXT:
            raise ValueError("not a layout: too long")
        try:
            found = json.loads(text)
            columns = ColumnNames.from_mapping(found["columns"]) if "columns" in found else None
            rows = [
                (str(name), tuple(int(side) for side in shape), str(np.dtype(dtype)))
                for name, shape, dtype in found["arrays"]
            ]
            private = tuple(str(name) for name in found["private"])
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise ValueError(f"not a layout: {error}") from None
        names, shapes, dtypes = zip(*rows, strict=True) if rows else ((), (), ())
        if any(side < 0 for shape in shapes for side in shape) or len(set(names)) != len(names):
            raise ValueError("not a layout: negative sizes or repeated names")
        if any(np.dtype(dtype).kind not in "biufc" for dtype in dtypes):
            raise ValueError("not a layout: arrays of something else than numbers")
        return cls(names, shapes, dtypes, private, columns)

    def to_text(self) -> str:
        """Return the layout as one line of JSON."""
        return self._text

    @cached_property
    def _text(self) -> str:
        rows = [list(row) for row in zip(self.names, self.shapes, self.dtypes, strict=True)]
        document: dict[str, Any] = {"arrays": rows, "private": list(self.private)}
        if self.columns is not None:
            document["columns"] = self.columns.to_mapping()
        return json.dumps(document, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """Eight bytes of BLAKE2b over the text, so that both sides can tell that they mean the same."""
        return hashlib.blake2b(self.to_text().encode(), digest_size=8).hexdigest()

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

    def flatten(self, arrays: ArrayRecord) -> Vector:
        """Return the shared vector (D,) of `arrays`, which nobody may change; ValueError if they do not fit."""
        if arrays.keys() != self._name_set:
            raise ValueError(f"arrays are named {_few(tuple(arrays))}, not {_few(self.names)}")
        parts = []
        for name, shape, dtype, is_shared in self._rows:
            if not is_shared:
                continue
            part = values_of(arrays[name], dtype, shape)
            if part.shape != shape:
                raise ValueError(f"array {name!r} has shape {part.shape}, not {shape}")
            parts.append(np.asarray(part, dtype=self.dtype).ravel())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def restore(
        self, vector: Vector, own: ArrayRecord | None = None, again: Callable[[], Vector] | None = None
    ) -> ArrayRecord:
        """Return a model's arrays from the shared vector and, where not shared, from `own` (or zeros).

        `again` returns the vector once more: then the arrays may be given away (:class:`HeldArray`).
        """
        if again is not None and len(self.names) > 1:
            again = cache(again)  # for all arrays
        arrays: dict[str, Any] = {}
        start = 0
        for name, shape, dtype, is_shared in self._rows:
            if is_shared:
                part = partial(_part, slice(start, start + math.prod(shape)), dtype, shape)
                arrays[name] = HeldArray(
                    part(lambda: vector), None if again is None else partial(part, again)
                )
                start += math.prod(shape)
            elif own is not None and name in own:
                arrays[name] = own[name]
            else:
                arrays[name] = HeldArray(np.zeros(shape, dtype=dtype))
        return fill(ArrayRecord, arrays)

    @cached_property
    def _rows(self) -> list[tuple[str, tuple[int, ...], np.dtype[Any], bool]]:
        """Name, shape and type of every array, and whether it is shared."""
        rows = zip(self.names, self.shapes, map(np.dtype, self.dtypes), strict=True)
        return [
            (name, shape, dtype, dtype.kind in "fc" and name not in self.private)
            for name, shape, dtype in rows
        ]

    @cached_property
    def _name_set(self) -> set[str]:
        return set(self.names)

    def kept(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return those of `arrays` that are not shared."""
        return fill(
            ArrayRecord,
            {name: arrays[name] for name, _, _, is_shared in self._rows if not is_shared and name in arrays},
        )


def _part(place: slice, dtype: np.dtype[Any], shape: tuple[int, ...], vector: Callable[[], Vector]) -> Vector:
    """Return one array of the shared vector."""
    return np.asarray(vector()[place], dtype=dtype).reshape(shape)


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
