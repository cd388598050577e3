"""The student's and the researcher's page: every command and every line of Python prints what the page shows."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("run_page", DOCS / "run_page.py")
RUN = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RUN)


@pytest.mark.parametrize("page", RUN.PAGES)
def test_a_page_shows_what_its_commands_print(page: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = (DOCS / page).read_text(encoding="utf-8")
    again = RUN.run_page(text, tmp_path)
    assert RUN.comparable(again) == RUN.comparable(text), f"{page}: run `python docs/run_page.py`"
    for picture in RUN.pictures_of(text):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
        assert (DOCS / "images" / f"tutorial_{picture}").stat().st_size < 150_000


def test_output_that_is_wrong_is_noticed(tmp_path) -> None:
    text = "```python\nprint(1 + 1)\n```\n\n```\n3\n```\n"
    assert RUN.run_page(text, tmp_path) == text.replace("3", "2")
