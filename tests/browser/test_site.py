"""The documentation site, opened from disk: nothing is fetched, formulas are drawn, search answers."""

import importlib.util
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import psofed
from psofed.common.numbers import to_decibels

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.docs,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="`make docs` has not built the site"),
]


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_window_and_fetch_nothing(open_page, width: int, scheme: str) -> None:
    for name in ("index", "exact_theory", "tune"):
        page = open_page((SITE / f"{name}.html").as_uri(), width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.get_attribute("body", "data-md-color-scheme") == {"light": "default", "dark": "slate"}[scheme]


def test_no_page_scrolls_sideways_on_a_phone(open_page) -> None:
    page = open_page((SITE / "index.html").as_uri(), width=390)
    for file in sorted(SITE.rglob("*.html")):
        if file.name == "404.html":  # its links start at the root of a server
            continue
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), file.name


@pytest.fixture
def playground_tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield importlib.import_module("playground_tables")
    sys.modules.pop("playground_tables", None)


def test_the_playground_shows_what_predict_gives(open_page, playground_tables) -> None:
    draw = random.Random(3)
    address = (SITE / "playground.html").as_uri()
    page = open_page(address, width=390)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for fleet in playground_tables.FLEETS:
        first = playground_tables.fleet_scenario(fleet, 1)
        m, b = draw.randint(1, first.dimension), draw.randint(1, first.num_clients)
        p, v, mu = draw.choice([0.15, 0.6, 1.0]), draw.choice([0.05, 1.25]), draw.choice([0.021, 0.063, 0.11])
        metric = draw.choice(playground_tables.METRICS)
        page.goto(f"{address}#fleet={fleet}&m={m}&b={b}&p={p}&v={v}&mu={mu}&metric={metric}")
        page.reload()  # the link restores the settings
        attack = psofed.attacks.Gaussian(num_byzantine=b, probability=p, variance=v)
        scenario = playground_tables.fleet_scenario(fleet, m, stepsize=mu, attack=attack)
        level = to_decibels(getattr(psofed.predict(scenario), metric))
        assert page.inner_text("#pg-value") == f"{level:.2f}\u00a0dB".replace("-", "\u2212"), fleet
    page.fill("#pg-mu", str(len(playground_tables.STEPSIZES) - 1))
    assert page.inner_text("#pg-sentence").startswith("Unstable: stepsize 0.5 exceeds")
    page.click("#pg-best")
    assert not page.inner_text("#pg-sentence").startswith("Unstable")
    page.reload()
    assert "mu=" in page.url


def test_the_page_for_a_wrong_address_leads_on() -> None:
    """It is served for any address, so its links are absolute."""
    article = (SITE / "404.html").read_text(encoding="utf-8").split("<article", 1)[1].split("</article>", 1)[0]
    targets = re.findall(r'href="(/[^"#]+)"', article)
    assert len(targets) >= 5
    assert all((SITE / target.lstrip("/")).is_file() for target in targets)


def test_formulas_are_drawn(open_page) -> None:
    page = open_page((SITE / "exact_theory.html").as_uri())
    sizes = page.evaluate("[...document.querySelectorAll('.formula math')].map(m => m.getBoundingClientRect().height)")
    assert len(sizes) >= 2
    assert min(sizes) > 15
    assert "$" not in page.inner_text("article").replace("$ ", "")


def test_a_copy_button_copies_commands_without_prompts_and_output(open_page) -> None:
    page = open_page((SITE / "tutorial_student.html").as_uri())
    page.evaluate("navigator.clipboard.writeText = text => { window.copied = text }")
    page.locator(".language-console button").first.click()
    assert page.evaluate("window.copied") == "psofed example > scenario.toml\npsofed simulate scenario.toml"


# What a newcomer types, and the page that should come first or second.
SEARCHED = {
    "install": "index.html",
    "learning rate": "glossary.html",
    "byzantine": "glossary.html",
    "gateway": "node_operator.html",
    "csv": "own_data.html",
    "stepsize": "tune.html",
    "privacy": "attacks.html",
    "mqtt": "node_operator.html",
    "attack": "attacks.html",
    "cite": "index.html",
    "krum": "algorithms.html",
    "median": "algorithms.html",
    "speed": "comparison.html",
    "plot": "sweep.html",
    "quickstart": "index.html",
    "start a client": "node_operator.html",
    "certificate": "fleet_operator.html",
    "cluster": "sweep.html",
    "latex table": "paper_figures.html",
    "custom attack": "write_a_part.html",
}


def test_search_finds_the_page_without_a_server(open_page) -> None:
    page = open_page((SITE / "tune.html").as_uri())
    for words, expected in SEARCHED.items():
        page.click("input.md-search__input")
        page.fill("input.md-search__input", "")
        page.keyboard.type(words)
        page.wait_for_function(
            """expected => [...document.querySelectorAll(".md-search-result__item")].slice(0, 2)
                .some(item => item.querySelector("a").href.includes(expected))""",
            arg=expected,
            timeout=30_000,
        )


def test_a_formula_that_is_not_understood_is_noticed() -> None:
    pytest.importorskip("latex2mathml")
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert "ℬ" in hooks.to_mathml(r"\mathcal B", is_block=False)
    with pytest.raises(ValueError, match="not understood"):
        hooks.to_mathml(r"\begin{gathered} a & b \end{gathered}", is_block=True)
