"""The pages on attacks and aggregation rules name every part and every option."""

from pathlib import Path

import pytest

from psofed.parts.options import declared_options
from psofed.parts.registry import part_names

DOCS = Path(__file__).parents[2] / "docs"
PARTS = [(kind, name) for kind in ("attacks", "aggregations") for name in part_names(kind)]


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_the_page_gives_the_parts_row_with_its_options_and_defaults(kind: str, name: str) -> None:
    rows = (DOCS / f"{kind}.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in rows if line.startswith(f"| `{name}`") and line.count("|") > 4)
    for option, about in declared_options(kind, name).items():
        assert f"`{option}`" in row, f"{name}: {option} is missing"
        default = about.default if isinstance(about.default, str) else f"{about.default:g}"
        assert str(default) in row, f"{name}: the default {default} of {option} is missing"
