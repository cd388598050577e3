"""Every function and every test that the table of equations names is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docs, pytest.mark.theory]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
ROWS = [row for row in ROWS if row[0] not in ("equation",)]
CODE = sorted({name for row in ROWS for name in re.findall(r"`([\w/]+\.py(?:: [\w.]+)?)`", row[2])})
TESTS = sorted({name for row in ROWS for name in re.findall(r"`((?!theory/)[\w/]+\.py)`", row[3])})


def test_every_equation_has_code_and_a_test() -> None:
    assert len(ROWS) > 25
    for row in ROWS:
        assert len(row) == 4, row
        assert "`" in row[2], f"{row[0]} names no code"
        assert row[3], f"{row[0]} names no test"


@pytest.mark.parametrize("name", CODE)
def test_the_code_that_is_named_is_there(name: str) -> None:
    file, _, path = name.partition(": ")
    module = import_module("psofed." + file.removesuffix(".py").replace("/", "."))
    value = module
    for step in path.split(".") if path else []:
        fields = getattr(value, "__dataclass_fields__", {})
        value = fields[step] if step in fields else getattr(value, step)


@pytest.mark.parametrize("name", TESTS)
def test_the_test_that_is_named_is_there(name: str) -> None:
    assert (ROOT / "tests" / name).is_file()
