"""The example parts to which the documentation points behave as every part must."""

from pathlib import Path
from types import ModuleType

import pytest

import psofed
from psofed.parts.part import Part
from psofed.testing import check_part

pytestmark = [pytest.mark.docs, pytest.mark.parts, pytest.mark.testing]

ROOT = Path(__file__).parents[2]
REQUIRED = {"Ramp": {"speed": 1e-4}}  # options without a default
PAGE = (ROOT / "docs" / "part_families.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def examples() -> ModuleType:
    return psofed.load_plugin(ROOT / "examples" / "own_parts.py")


def _classes(module: ModuleType) -> dict[str, type[Part]]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Part) and value.__module__ == module.__name__
    }


def test_the_page_names_every_example(examples: ModuleType) -> None:
    names = _classes(examples)
    assert len(names) >= 14
    assert all(f"`{name}`" in PAGE for name in names)


@pytest.mark.slow
def test_every_example_passes_the_checks_of_its_family(examples: ModuleType) -> None:
    for name, part in _classes(examples).items():
        check_part(part(**REQUIRED[name]) if name in REQUIRED else part)
