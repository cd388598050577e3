"""The benchmarks' tables find their places: whole on the pages, in part in the README."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
TABLE = "| a | b | c |\n| --- | ---: | ---: |\n| one | 1 | 2 |\n| two, too | 3 | 4 |"


@pytest.fixture
def writer(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.__main__")


def test_a_page_gets_the_whole_table(writer) -> None:
    page = "x\n<!-- bench:speed -->\nold\n<!-- /bench:speed -->\ny\n"
    assert writer.with_table(page, "speed", TABLE) == page.replace("old", TABLE)
    assert writer.with_table(page, "other", TABLE) == page


def test_a_page_gets_the_part_it_asks_for(writer) -> None:
    page = '<!-- bench:speed columns 1 3 rows "two, too" -->\nold\n<!-- /bench:speed -->\n'
    shown = "| a | c |\n| --- | ---: |\n| two, too | 4 |"
    assert writer.with_table(page, "speed", TABLE) == page.replace("old", shown)


def test_a_row_that_is_not_there_is_refused(writer) -> None:
    with pytest.raises(SystemExit, match="three"):
        writer.part_of(TABLE, 'rows "three"')


def test_the_readme_shows_a_part_of_the_page_on_speed(writer) -> None:
    whole = re.search(
        r"<!-- bench:simulator -->\n(.*?)\n<!--", (ROOT / "docs/speed.md").read_text("utf-8"), re.S
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert writer.with_table(readme, "simulator", whole[1]) == readme


def test_examples_of_the_writer_hold(writer) -> None:
    assert doctest.testmod(writer).failed == 0
