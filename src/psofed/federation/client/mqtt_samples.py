"""Samples of MQTT payloads: how they are read, and which of them have arrived before."""

import csv
import datetime
import heapq
import json
import math
from collections.abc import Sequence
from typing import Any

from psofed.common.errors import PsofedError

_MAX_PAYLOAD = 1 << 20


def read_payload(payload: bytes, columns: Sequence[str], time_column: str = "") -> list[list[str]]:
    """Return the samples in a payload as rows of text, the time first if there is one.

    Examples
    --------
    >>> read_payload(b'{"output": 2.5, "wind": 3, "comment": "calm"}', ["wind", "output"])
    [['3', '2.5']]
    >>> read_payload(b'[{"wind": 3, "output": 2.5}, {"wind": 4, "output": null}]', ["wind", "output"])
    [['3', '2.5'], ['4', '']]
    """
    if len(payload) > _MAX_PAYLOAD:
        raise PsofedError(f"a payload of {len(payload):,} bytes, where {_MAX_PAYLOAD:,} are allowed")
    try:
        text = payload.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise PsofedError("a payload that is not UTF-8 text") from None
    if text.startswith(("{", "[")):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PsofedError(f"a payload that is not JSON: {error}") from None
        samples = document if isinstance(document, list) else [document]
    else:
        samples = list(csv.DictReader(text.splitlines()))
    if not samples or not all(isinstance(sample, dict) for sample in samples):
        raise PsofedError("a payload without named fields; it must be a JSON object, or CSV with a header line")
    wanted = [*([time_column] if time_column else []), *columns]
    rows = []
    for sample in samples:
        if lacking := [name for name in wanted if name not in sample]:
            raise PsofedError(f"a payload without the field {', '.join(lacking)}")
        values = [_value(name, sample[name]) for name in columns]
        rows.append([_time(sample[time_column]), *values] if time_column else values)
    return rows


def _value(name: str, value: Any) -> str:
    """Return a number as text, or an empty string if it is missing."""
    if value is None or value == "":
        return ""
    try:
        finite = not isinstance(value, bool) and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        finite = False
    if not finite:
        raise PsofedError(f"{str(value)[:40]!r} in the field {name} is not a finite number")
    return str(value).strip()


def _time(value: Any) -> str:
    text = str(value).strip()
    seconds_of(text)
    return text


def seconds_of(text: str) -> float:
    """Return a time as a number."""
    try:
        found = float(text)
    except ValueError:
        try:
            found = datetime.datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            found = math.nan
    if not math.isfinite(found):
        raise PsofedError(f"{text[:40]!r} is not a time: a number or ISO 8601")
    return found


class SampleTimes:
    """The latest times of one client's samples, to recognise those that arrive twice.

    Examples
    --------
    >>> times = SampleTimes()
    >>> [times.judge(t, keep=2) for t in (10.0, 12.0, 11.0, 12.0, 9.0)]
    ['', '', '', 'duplicate', 'late']
    """

    def __init__(self) -> None:
        self._heap: list[float] = []
        self._seen: set[float] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def judge(self, time: float, keep: int) -> str:
        """Remember a sample, and the latest `keep` of them; return an empty string, or why the sample does not count.

        It does not count if it is a duplicate, or older than all that are remembered.
        """
        if time in self._seen:
            return "duplicate"
        if len(self._heap) >= keep and time < self._heap[0]:
            return "late"
        self._seen.add(time)
        heapq.heappush(self._heap, time)
        while len(self._heap) > keep:
            self._seen.discard(heapq.heappop(self._heap))
        return ""
