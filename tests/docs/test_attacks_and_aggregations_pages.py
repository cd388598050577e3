"""The pages on attacks and aggregation rules name every part and every option."""

from pathlib import Path

import pytest

from psofed.parts.registry import find_part, part_names

pytestmark = [pytest.mark.docs, pytest.mark.parts]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"attack": "attacks", "aggregation": "aggregations", "pre_aggregation": "aggregations"}
PARTS = [(family, kind) for family in PAGES for kind in part_names(family)]


@pytest.mark.parametrize(("family", "kind"), PARTS)
def test_the_page_gives_the_parts_row_with_its_options_and_defaults(family: str, kind: str) -> None:
    rows = (DOCS / f"{PAGES[family]}.md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in rows if line.startswith(f"| `{kind}`") and line.count("|") > 4)
    for name, field in find_part(family, kind).own_options().items():
        assert f"`{name}`" in row, f"{kind}: {name} is missing"
        default = field.default if isinstance(field.default, str) else f"{field.default:g}"
        assert str(default) in row, f"{kind}: the default {default} of {name} is missing"
