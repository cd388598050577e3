"""In which order the tests are run that should notice a change: those that most likely do it soon first."""

import json
from pathlib import Path
from typing import Any

import pytest

# Files that define parts, or start much at their beginning.
WHOLE = ("/test_own_", "/test_federation_", "/test_defence_agreement", "/test_store_key")
SLOW = ("/test_federation_processes", "::test_descendants_that_will_not_end")
QUICK, LONG = 0.25, 1.0
CASES = 16


class LikelyFirst:
    """A plugin of pytest's: first tests that noticed earlier changes, then quick ones, then the others."""

    def __init__(self, tests: tuple[str, ...], file: Path, room: str, quick: bool) -> None:
        self.places = {name.split("::")[0]: place for place, name in enumerate(tests)}
        self.file, self.quick = file, quick
        self.known: dict[str, float] = read(file)
        self.noticed: list[str] = read(file.with_name("noticed.json")).get(room, [])
        self.taken: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Sort. Files that define parts stay whole, since those are forgotten after the last of their tests."""
        if self.quick:
            few = set(_few([item for item in items if self.known.get(item.nodeid, 0.0) <= LONG]))
            items[:] = [item for item in items if item in few or item.nodeid in self.noticed]
        items.sort(key=self._place)

    def _place(self, item: Any) -> tuple[bool, bool, int, float]:
        seconds = self.known.get(item.nodeid, 0.0)
        file = item.nodeid.split("::")[0]
        place = self.places.get(file, len(self.places))
        if any(text in file for text in WHOLE):
            return True, True, place, seconds
        return item.nodeid not in self.noticed, seconds > QUICK, place, seconds

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note what a test takes."""
        self.taken[report.nodeid] = self.taken.get(report.nodeid, 0.0) + report.duration

    def keep(self) -> None:
        """Write the times of tests down that were not known."""
        write(self.file, self.taken | self.known)


def _few(items: list[Any]) -> list[Any]:
    """Of every test at most so many cases, evenly spread."""
    cases: dict[str, list[Any]] = {}
    for item in items:
        if not any(text in item.nodeid for text in SLOW):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    return [item for found in cases.values() for item in found[:: -(-len(found) // CASES)]]


def read(file: Path) -> dict[str, Any]:
    """Return what a file of JSON has, if it is there."""
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def write(file: Path, content: dict[str, Any]) -> None:
    """Write a file of JSON, and its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
