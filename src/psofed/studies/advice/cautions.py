"""Oddities of a table to look at before any answer: measured, without a cause."""

from collections.abc import Iterator, Sequence

import numpy as np

from psofed.common.types import FloatArray
from psofed.data.own_data import OwnData
from psofed.render.numbers import counted, significant

_COPY = 0.9999  # correlation of an input with the target from which on it is a copy
_UNEVEN = 1.5  # ratio of the numbers of rows of two clients
_FEWEST, _NEAR = 8, 4  # rows on each side of a jump, and those next to it
_RATIO = 1.5  # of two levels with different units
BOUND = 5.0  # deviations from which on a target is extreme


def cautions(data: OwnData) -> Iterator[str]:
    """Yield codes for missing values, copies of the target, jumps in level, uneven numbers of rows and 0/1 targets."""
    table, target = data.table, data.table.target_column
    for name, (code, rows) in table.missing_codes.items():
        yield f"{name} is {significant(code)} in {counted(rows, 'row')}, far from all its other values."
    targets = np.concatenate(table.targets)
    for name, column in zip(table.features, np.vstack(table.inputs).T, strict=True):
        both = np.isfinite(column)
        with np.errstate(invalid="ignore", divide="ignore"):  # a constant column
            if both.sum() > 2 and abs(np.corrcoef(column[both], targets[both])[0, 1]) > _COPY:
                yield f"{name} is a copy of {target}, up to scale: is it known before the prediction?"
    columns = {name: [x[:, at] for x in table.inputs] for at, name in enumerate(table.features)}
    for name, values in (columns | {target: list(table.targets)}).items():
        for text in _jumps(table.clients, [column[np.isfinite(column)] for column in values]):
            yield f"{name} {text}: compare the units."
    yield from _rates(data)
    if len(levels := np.unique(targets)) == 2:
        yield (
            f"{target} has only the values {levels[0]:g} and {levels[1]:g}: it is predicted as a number, and errors "
            "are not shares of wrong classes."
        )


def extreme_rows(data: OwnData) -> tuple[str, ...]:
    """Return rows whose target is beyond five deviations, the most extreme first, by client and time or number."""
    extreme, times = [], data.table.times
    for k, (name, scaled) in enumerate(zip(data.clients, data.targets, strict=True)):
        first = len(data.table.targets[k]) - len(scaled)  # the rows before only feed the means
        for row in np.flatnonzero(np.abs(scaled) > BOUND) + first:
            where = str(np.datetime64(int(times[k][row]), "s")) if times else f"row {row + 1}"
            where = where.removesuffix(":00").removesuffix("T00:00")
            extreme.append((-abs(float(scaled[row - first])), f"{name} {where}"))
    return tuple(text for _, text in sorted(extreme))


def _rates(data: OwnData) -> Iterator[str]:
    """Yield a note if clients measure at different rates: by their times where there are any, else by row counts."""
    meet = "their n-th rows, which meet in one iteration, are from different times."
    steps = [abs(float(np.median(np.diff(times)))) for times in data.table.times]
    rows = list(map(len, data.table.targets))
    if steps and max(steps) > _UNEVEN * min(steps):
        slow, fast = data.clients[int(np.argmax(steps))], data.clients[int(np.argmin(steps))]
        yield f"{fast} has a row every {min(steps):,g} s and {slow} every {max(steps):,g} s: {meet}"
    elif not steps and max(rows) > _UNEVEN * min(rows):
        yield f"Clients have {min(rows):,} to {max(rows):,} rows. If they measure at different rates, {meet}"


def _jumps(clients: Sequence[str], columns: list[FloatArray]) -> Iterator[str]:
    """Say at which clients a column is on another level than elsewhere, or jumps to another and stays there."""
    if len(np.unique(np.concatenate(columns))) < 2 * _FEWEST:
        return
    for k, (client, column) in enumerate(zip(clients, columns, strict=True)):
        others = [*columns[:k], *columns[k + 1 :]]
        if len(others) > 1 and (levels := _apart(column, np.concatenate(others))):
            yield f"is about {levels[0]} at {client} and about {levels[1]} elsewhere"
        elif len(column) >= 2 * _FEWEST:
            at = _jump(column)
            if levels := _apart(column[:at], column[at:]):
                text = f"jumps from about {levels[0]} to about {levels[1]} at its row {at + 1} and stays there"
                yield f"of {client} {text}"


def _jump(column: FloatArray) -> int:
    """Return where a column moves at once to values that are all beyond those before, or 0."""
    up = np.minimum.accumulate(column[::-1])[::-1][1:] - np.maximum.accumulate(column)[:-1]
    down = np.minimum.accumulate(column)[:-1] - np.maximum.accumulate(column[::-1])[::-1][1:]
    inner = np.maximum(up, down)[_FEWEST - 1 : len(column) - _FEWEST]
    at = int(np.argmax(inner)) + _FEWEST
    at_once = abs(np.median(column[at : at + _NEAR]) - np.median(column[at - _NEAR : at]))
    is_sudden = at_once > 0.7 * abs(np.median(column[at:]) - np.median(column[:at]))
    return at if is_sudden else 0


def _apart(first: FloatArray, second: FloatArray) -> tuple[str, str] | None:
    """Return the levels of two sets of values if no value of one lies among the other's, and they are far apart."""
    if min(len(first), len(second)) < _FEWEST or (first.min() <= second.max() and second.min() <= first.max()):
        return None
    levels = float(np.median(first)), float(np.median(second))
    gap, spread = abs(levels[0] - levels[1]), max(float(first.std()), float(second.std()))
    low, high = sorted(map(abs, levels))
    is_same_unit = levels[0] * levels[1] > 0 and high < _RATIO * low
    return None if gap < 2 * spread or is_same_unit else (significant(levels[0], 3), significant(levels[1], 3))
