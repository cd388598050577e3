"""The documentation site, opened from disk: nothing is fetched, formulas are drawn, search answers."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="`make docs` has not built the site"),
]


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_window_and_fetch_nothing(open_page, width: int, scheme: str) -> None:
    for name in ("index", "exact_theory", "howto/tune"):
        page = open_page((SITE / f"{name}.html").as_uri(), width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert (
            page.get_attribute("body", "data-md-color-scheme")
            == {"light": "default", "dark": "slate"}[scheme]
        )


def test_formulas_are_drawn(open_page) -> None:
    page = open_page((SITE / "exact_theory.html").as_uri())
    sizes = page.evaluate(
        "[...document.querySelectorAll('.formula math')].map(m => m.getBoundingClientRect().height)"
    )
    assert len(sizes) >= 10
    assert min(sizes) > 15
    assert "$" not in page.inner_text("article").replace("$ ", "")


def test_search_answers_without_a_server(open_page) -> None:
    page = open_page((SITE / "howto" / "tune.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("krum")
    page.wait_for_selector(".md-search-result__item", timeout=20_000)
    assert page.locator(".md-search-result__item").count() > 2


def test_a_formula_that_is_not_understood_is_noticed() -> None:
    pytest.importorskip("latex2mathml")
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert "ℬ" in hooks.to_mathml(r"\mathcal B", is_block=False)
    with pytest.raises(ValueError, match="not understood"):
        hooks.to_mathml(r"\begin{gathered} a & b \end{gathered}", is_block=True)
