"""The benchmarks' tables find their places: whole on the pages, in part in the README."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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


@pytest.mark.parametrize("name", ["simulator", "fleets"])
def test_the_readme_shows_a_part_of_the_whole_table(writer, name: str) -> None:
    shown, whole = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/comparison.md"))
    table = re.search(rf"<!-- bench:{name} -->\n(.*?)\n<!--", whole, re.S)
    assert f"<!-- bench:{name} " in shown
    assert writer.with_table(shown, name, table[1]) == shown


def test_the_first_sentence_on_speed_repeats_its_table() -> None:
    page = (DOCS / "comparison.md").read_text(encoding="utf-8")
    rate = re.search(r"\| psofed, 1 thread \| (\d+) M \|", page)[1]
    factor = re.search(r"\| NumPy, over clients \|.*\| (\d+) times faster \|", page)[1]
    assert f"One core does {rate} million client updates per second, {factor} times as many" in page


def test_pages_show_parts_of_the_tables_that_are_kept_as_files(writer) -> None:
    pages = [page.read_text(encoding="utf-8") for page in writer.PAGES]
    used = {name for page in pages for name in re.findall(r"<!-- bench:(\S+)", page)}
    kept = {name: DOCS / "tables" / f"{name}.csv" for name in sorted(used)}
    assert {"peers-errors", "peers-rates"} <= kept.keys()
    for name, file in kept.items():
        if file.exists():
            table = writer.from_csv(file.read_text(encoding="utf-8"))
            assert all(writer.with_table(page, name, table) == page for page in pages), name


# Measured values that a page's sentences repeat, and the page or table where they are measured.
QUOTED = {
    ("README.md", "docs/resilience.md"): ["0.13 dB"],
    ("docs/paper.md", "docs/exact_theory.md"): ["57", "0.12 %"],
    ("docs/index.md", "docs/tutorial_student.md"): ["a third"],
    ("docs/comparison.md", "docs/tables/peers-bytes.csv"): ["10.0 %", "18.6 %", "50.0 %"],
    ("docs/comparison.md", "docs/tables/families.csv"): ["9.18"],
    ("docs/exact_theory.md", "docs/tables/theory_agreement.csv"): ["0.02585", "0.03578", "0.07336"],
    ("docs/algorithms.md", "docs/tables/algorithms_rivals.csv"): ["−16.28", "−18.23", "7.22", "−17.49", "6,128"],
    ("docs/algorithms.md", "docs/tables/algorithms_readings.csv"): ["−15.5", "−16.2"],
    ("docs/algorithms.md", "docs/tables/aggregations_masks.csv"): ["−14.5 ± 0.3", "−36.5 ± 0.1"],
    ("docs/studies.md", "docs/tables/deep_attacks.csv"): ["80.4 ± 4.1", "15.5 ± 7.3", "89.1 ± 1.1"],
}


@pytest.mark.parametrize(("page", "source"), QUOTED)
def test_values_that_a_page_repeats_are_those_of_their_source(page: str, source: str) -> None:
    quoting, measured = ((ROOT / name).read_text(encoding="utf-8") for name in (page, source))
    for value in QUOTED[page, source]:
        assert value in quoting, f"{page} does not say {value}"
        assert value in measured, f"{source} does not say {value}"


def test_sentences_of_the_comparison_repeat_its_tables() -> None:
    prose = (DOCS / "comparison.md").read_text(encoding="utf-8")
    errors, rates = ((DOCS / "tables" / f"peers-{name}.csv").read_text("utf-8") for name in ("errors", "rates"))
    assert all(level in errors for level in re.findall(r"−\d+\.\d dB", prose))
    for factor in ("550", "910", "2,600"):
        assert factor in rates
        assert factor in prose


def test_examples_of_the_writer_hold(writer) -> None:
    assert doctest.testmod(writer).failed == 0
