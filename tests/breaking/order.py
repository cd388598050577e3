"""Order the tests that should notice a change: those most likely to notice it soon come first."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

QUICK, LONG = 0.25, 1.0
CASES = 16


class LikelyFirst:
    """A pytest plugin: first tests that noticed earlier changes, then quick ones, then the others."""

    def __init__(self, tests: tuple[str, ...], file: Path, package: str, quick: bool) -> None:
        self.places = {name.split("::")[0]: place for place, name in enumerate(tests)}
        self.file, self.quick = file, quick
        self.known: dict[str, float] = read(file)
        self.noticed: list[str] = read(file.with_name("noticed.json")).get(package, [])
        self.taken: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Sort the tests."""
        if self.quick:
            few = set(_few([item for item in items if self.known.get(item.nodeid, 0.0) <= LONG]))
            items[:] = [item for item in items if item in few or item.nodeid in self.noticed]
        items.sort(key=self._place)

    def _place(self, item: Any) -> tuple[bool, bool, int, float]:
        seconds = self.known.get(item.nodeid, 0.0)
        file = item.nodeid.split("::")[0]
        place = self.places.get(file, len(self.places))
        if stays_whole(item.path):
            return True, True, place, seconds
        return item.nodeid not in self.noticed, seconds > QUICK, place, seconds

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record how long a test takes."""
        self.taken[report.nodeid] = self.taken.get(report.nodeid, 0.0) + report.duration

    def keep(self) -> None:
        """Save the times of tests that were not known."""
        write(self.file, self.taken | self.known)


@cache
def stays_whole(file: Path) -> bool:
    """Tell whether the tests of a file must not be mixed with others.

    Parts that a file defines are forgotten after the last of its tests, and a fixture of the module is made again.
    """
    text = file.read_text(encoding="utf-8")
    return bool(re.search(r"^ *class \w+\((?!NamedTuple)", text, re.M)) or 'scope="' in text


def _few(items: list[Any]) -> list[Any]:
    """Return at most `CASES` cases of every test, evenly spread."""
    cases: dict[str, list[Any]] = {}
    for item in items:
        cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    return [item for same in cases.values() for item in same[:: -(-len(same) // CASES)]]


def read(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty mapping if there is none."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def write(file: Path, content: dict[str, Any]) -> None:
    """Write a JSON file, and create its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
