"""The conformance kit finds what is wrong with a part, in each family."""

import re
from typing import Any

import numpy as np
import pytest

import psofed
from psofed.parts.affine import Affine
from psofed.parts.part import Part
from psofed.testing.families import check_family

pytestmark = [pytest.mark.parts, pytest.mark.testing]

CALLS: list[int] = []


def _count(learner: Any, residual: Any) -> float:
    CALLS.append(1)
    return float(len(CALLS))


def _write_first(stream: Any, innovation: Any, memory: np.ndarray, out: np.ndarray) -> None:
    out[0] = innovation.normals[0]


def _take_the_first(rule: Any, updates: Any, out: np.ndarray) -> None:
    out[:] = updates.changes[0]


def _select(pattern: Any, mask: Any, out: np.ndarray) -> None:
    out[:] = np.arange(mask.num_shared)


WRONG: list[tuple[type[Part], dict[str, Any], str]] = [
    (psofed.Drift, {"move": lambda self, step: np.zeros(5)}, "move gives .* instead of 3 finite"),
    (psofed.Function, {"value": lambda self, x: np.nan}, "value gives nan instead of a finite"),
    (psofed.Learner, {"gain": _count}, "gain .* keeps something outside of its memory"),
    (psofed.InputStream, {"draw": _write_first}, "draw leaves entries of `out` unwritten"),
    (psofed.Delay, {"duration": lambda s, d: 3, "longest_delay": lambda s: 2}, "duration returns 3 instead"),
    (psofed.Defence, {"suspicion": lambda s, e, memory: -1.0, "memory_size": 1}, "suspicion returns -1"),
    (psofed.Defence, {"suspicion": lambda s, e, m: abs(e.scores[0]), "memory_size": 1}, "order of the values"),
    (psofed.Aggregation, {"over": "vectors", "combine": _take_the_first}, "order of the participants"),
    (psofed.PreAggregation, {"weigh": lambda s, u, out: None, "uploads_after": lambda s, p: 0}, "between 1"),
    (psofed.Availability, {"is_available": lambda self, presence: 2}, "is_available returns 2"),
    (psofed.Availability, {"is_available": lambda self, presence: False}, "clients are available for"),
    (psofed.Channel, {"transmit": lambda self, t, out: None}, "transmit does not write every value"),
    (psofed.Pattern, {"select": lambda self, mask, out: None}, "instead of 2 distinct entries"),
    (psofed.Pattern, {"select": _select, "mask_moments": lambda s, d, m: (m / d, 0.0)}, "have another mean"),
    (
        psofed.Attack,
        {"corrupt": lambda self, upload: 2 * upload.value, "affine": lambda self: Affine(own=3.0)},
        "affine.. states",
    ),
    (psofed.Attack, {"corrupt": lambda self, upload: upload.value, "knows": "all"}, "knows = 'all' is not"),
]


@pytest.mark.parametrize(("base", "space", "problem"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_the_kit_names_what_is_wrong_with_a_part(base: type[Part], space: dict[str, Any], problem: str) -> None:
    options: dict[str, Any] = {"num_byzantine": 1} if base is psofed.Attack else {}
    part = type(f"_Wrong{base.__name__}", (base,), space)(**options)
    problems = list(check_family(part))
    assert problems
    assert re.search(problem, problems[0]), problems[0]
