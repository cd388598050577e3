"""The report in a real browser: wide and narrow, light and dark, and in print."""

import re

import pytest

from psofed.paper.model import Quality
from psofed.paper.reproduce import reproduce, save_reproduction

pytestmark = [pytest.mark.paper, pytest.mark.render, pytest.mark.slow, pytest.mark.takes(30)]

WIDE, PHONE = 1400, 390


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three figures with a few trials: the algorithms, a curve with theory next to it, and the terms."""
    figures = reproduce(["fig1", "fig2", "fig9"], Quality(trials=4))
    return save_reproduction(figures, tmp_path_factory.mktemp("report"))[1].as_uri()


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_fits_the_window_in_its_colours(report, open_page, screenshot, sideways, width, scheme):
    page = open_page(report, width=width, scheme=scheme)
    assert sideways(page) == []
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    assert sideways(page) == []
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").split(",")[0])
    assert red > 240 if scheme == "light" else red < 40
    assert page.evaluate("[...document.images].every(e => e.complete && e.naturalWidth > 300)")
    screenshot(page, f"report-{width}-{scheme}")


def test_the_answer_comes_first_with_the_verdicts(report, open_page):
    page = open_page(report)
    for part in (".answer", ".tiles"):
        box = page.locator(part).bounding_box()
        assert box["y"] + box["height"] < 900, part


def test_the_navigation_stays_and_leads_to_every_figure(report, open_page):
    page = open_page(report)
    page.evaluate("scrollTo({top: document.body.scrollHeight, behavior: 'instant'})")
    assert page.locator(".bar").bounding_box()["y"] == pytest.approx(0, abs=1)
    page.locator('.bar nav a[href="#fig2"]').click()
    page.wait_for_function("() => Math.abs(document.getElementById('fig2').getBoundingClientRect().top - 64) < 40")


def test_it_prints_light_and_whole(report, open_page):
    page = open_page(report, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("img:visible").count() == 3
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) <= 14
