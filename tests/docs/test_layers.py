"""The package is laid out as docs/architecture.md says."""

import ast
import re
import tomllib
from collections import defaultdict
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


def test_every_module_that_the_architecture_page_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    modules = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    for name in re.findall(r"`([\w/]+\.py)\b", page):
        assert any(f"/psofed/{module}".endswith(f"/{name}") for module in modules) or (ROOT / name).exists(), name


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared
