"""The example parts to which the documentation points behave as every part must."""

from pathlib import Path

import pytest

import psofed
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES
from psofed.testing import check_part

pytestmark = [pytest.mark.docs, pytest.mark.parts, pytest.mark.testing]

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples" / "parts").glob("*.py"))
REQUIRED = {"Ramp": {"speed": 1e-4}}  # options without a default
PAGE = (ROOT / "docs" / "write_a_part.md").read_text(encoding="utf-8")


def _classes(file: Path) -> dict[str, type[Part]]:
    module = psofed.load_plugin(file)
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Part) and value.__module__ == module.__name__
    }


def test_every_family_has_a_file_that_the_page_links() -> None:
    assert {file.stem for file in FILES} == set(FAMILIES)
    assert all(f"(../examples/parts/{file.name})" in PAGE for file in FILES)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_example_passes_the_checks_of_its_family(file: Path) -> None:
    for name, part in _classes(file).items():
        check_part(part(**REQUIRED[name]) if name in REQUIRED else part)
