"""The package is laid out as docs/architecture.md says."""

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "psofed"


def test_the_architecture_page_lists_the_layers_that_are_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in settings["tool"]["importlinter"]["contracts"] if c.get("exhaustive"))
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.search(r"## The layers\n.*?```\n(.*?)```", page, re.S)
    assert listed is not None
    assert listed[1].splitlines() == contract["layers"]


def test_the_architecture_page_describes_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("src/psofed/\n", 1)[1].split("```", 1)[0]
    described = set(re.findall(r"^  (\w+)/", tree, re.M))
    assert described == {path.parent.name for path in SOURCE.glob("*/__init__.py")}
