"""Oddities of a table to look at before any answer: measured, without a cause."""

from collections.abc import Iterator

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
    table = data.table
    for name, (code, rows) in table.missing_codes.items():
        yield f"{name} is {significant(code)} in {counted(rows, 'row')}, far from all its other values."
    targets = np.concatenate(table.targets)
    for name, column in zip(table.features, np.vstack(table.inputs).T, strict=True):
        if _correlation(column, targets) > _COPY:
            yield f"{name} is a copy of {table.target_column}, up to scale: is it known before the prediction?"
    yield from _jumps(data)
    yield from _rates(data)
    if len(levels := np.unique(targets)) == 2:
        yield (
            f"{table.target_column} has only the values {levels[0]:g} and {levels[1]:g}: it is predicted as a number, "
            "and errors are not shares of wrong classes."
        )


def extreme_rows(data: OwnData) -> tuple[str, ...]:
    """Return rows whose target is beyond five deviations, the most extreme first, by client and time or number."""
    extreme = []
    for k, (name, scaled) in enumerate(zip(data.clients, data.targets, strict=True)):
        first = len(data.table.targets[k]) - len(scaled)  # the rows before only feed the means
        for row in np.flatnonzero(np.abs(scaled) > BOUND) + first:
            times = data.table.times
            where = str(np.datetime64(int(times[k][row]), "s")) if times else f"row {row + 1}"
            extreme.append(
                (-abs(float(scaled[row - first])), f"{name} {where.removesuffix(':00').removesuffix('T00:00')}")
            )
    return tuple(text for _, text in sorted(extreme))


def _correlation(first: FloatArray, second: FloatArray) -> float:
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 3 or not first[both].std() or not second[both].std():
        return 0.0
    return abs(float(np.corrcoef(first[both], second[both])[0, 1]))


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


def _jumps(data: OwnData) -> Iterator[str]:
    """Yield columns that jump to another level and stay there, or that are on another level at one client."""
    table = data.table
    columns = {name: [x[:, at] for x in table.inputs] for at, name in enumerate(table.features)}
    for name, values in (columns | {table.target_column: list(table.targets)}).items():
        by_client = dict(zip(table.clients, (column[np.isfinite(column)] for column in values), strict=True))
        if len(np.unique(np.concatenate(list(by_client.values())))) < 2 * _FEWEST:
            continue
        for client, column in by_client.items():
            others = [other for place, other in by_client.items() if place != client]
            level = _apart(column, np.concatenate(others)) if len(others) > 1 else None
            if level is not None:
                yield f"{name} is about {level[0]} at {client} and about {level[1]} elsewhere: compare the units."
            elif (jump := _jump(column)) is not None:
                at, (before, after) = jump
                yield (
                    f"{name} of {client} jumps from about {before} to about {after} at its row {at + 1} and stays "
                    "there: compare the units."
                )


def _jump(column: FloatArray) -> tuple[int, tuple[str, str]] | None:
    """Return where a column moves at once to values that are all beyond those before, and its levels."""
    if len(column) < 2 * _FEWEST:
        return None
    up = np.minimum.accumulate(column[::-1])[::-1][1:] - np.maximum.accumulate(column)[:-1]
    down = np.minimum.accumulate(column)[:-1] - np.maximum.accumulate(column[::-1])[::-1][1:]
    inner = np.maximum(up, down)[_FEWEST - 1 : len(column) - _FEWEST]
    at = int(np.argmax(inner)) + _FEWEST
    levels = _apart(column[:at], column[at:])
    at_once = abs(np.median(column[at : at + _NEAR]) - np.median(column[at - _NEAR : at]))
    is_sudden = at_once > 0.7 * abs(np.median(column[at:]) - np.median(column[:at]))
    return (at, levels) if levels is not None and is_sudden else None


def _apart(first: FloatArray, second: FloatArray) -> tuple[str, str] | None:
    """Return the levels of two sets of values if no value of one lies among the other's, and they are far apart."""
    if min(len(first), len(second)) < _FEWEST:
        return None
    if first.min() <= second.max() and second.min() <= first.max():
        return None
    levels = float(np.median(first)), float(np.median(second))
    gap, spread = abs(levels[0] - levels[1]), max(float(first.std()), float(second.std()))
    low, high = sorted(map(abs, levels))
    if gap < 2 * spread or (low * high > 0 and high < _RATIO * low and levels[0] * levels[1] > 0):
        return None
    return significant(levels[0], 3), significant(levels[1], 3)
