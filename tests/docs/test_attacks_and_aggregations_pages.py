"""The pages on attacks and aggregation rules have a row for every part."""

from pathlib import Path

import pytest

from psofed.parts.registry import part_names

pytestmark = [pytest.mark.docs, pytest.mark.parts]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"attack": "attacks", "aggregation": "aggregations", "pre_aggregation": "aggregations"}


@pytest.mark.parametrize("family", PAGES)
def test_the_page_has_a_row_for_every_part(family: str) -> None:
    rows = (DOCS / f"{PAGES[family]}.md").read_text(encoding="utf-8")
    missing = [kind for kind in part_names(family) if f"\n| `{kind}` |" not in rows]
    assert not missing
