"""The browser fixture itself: it sees pages, complains about errors, and measures what sticks out."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.explore, pytest.mark.paper, pytest.mark.slow]


def test_a_page_from_disk_is_seen(open_page, sideways, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<!doctype html><title>t</title><h1>Hello</h1>", encoding="utf-8")
    page = open_page(file.as_uri(), width=390)
    assert page.inner_text("h1") == "Hello"
    assert sideways(page) == []


def test_a_wide_element_is_named(open_page, sideways, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<!doctype html><title>t</title><div id='wide' style='width:2000px'>x</div>", encoding="utf-8")
    assert sideways(open_page(file.as_uri())) == ["DIV.#wide"]
