"""The report in a real browser: wide and narrow, light and dark, by mouse, finger and keyboard."""

import re

import numpy as np
import pytest

from psofed.paper.model import Quality
from psofed.paper.reproduce import reproduce, save_reproduction

pytestmark = [pytest.mark.paper, pytest.mark.render, pytest.mark.slow, pytest.mark.takes(40)]

WIDE, PHONE = 1400, 390


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Three figures with a few trials: the algorithms, a curve with theory beside it, and the terms."""
    found = reproduce(["fig1", "fig2", "fig9"], Quality(trials=4))
    return found.figures, save_reproduction(found, tmp_path_factory.mktemp("report"))[1]


# What a reader can change about the page, as far as it is seen.
STATE = """() => JSON.stringify([
    [...document.querySelectorAll('[aria-pressed]')].map(e => e.getAttribute('aria-pressed')),
    [...document.querySelectorAll('select')].map(e => e.value),
    [...document.querySelectorAll('details')].map(e => e.open),
    [...document.querySelectorAll('.readout')].map(e => e.hidden),
    [...document.querySelectorAll('[data-chart]')]
        .map(e => Bokeh.documents[0].get_model_by_name(e.dataset.chart).x_range)
        .map(range => [range.start.toPrecision(9), range.end.toPrecision(9)]),
    document.documentElement.dataset.theme ?? '',
])"""


def is_ready(page):
    page.wait_for_selector("body[data-ready]")
    page.wait_for_function("() => Bokeh.documents[0].is_idle")
    return page


@pytest.fixture(scope="module")
def pages():
    """The page in each of its windows, and how it was at first: to draw it takes a browser two seconds."""
    return {}


@pytest.fixture
def opened(report, shared_windows, pages):
    """Look at the page in a window: wide or a phone's, light or dark. Tests leave it as they have found it."""
    used = []

    def open_at(width=WIDE, scheme="light"):
        if (width, scheme) not in pages:
            page = shared_windows.open(report[1].as_uri(), width=width, scheme=scheme, touch=width == PHONE)
            pages[width, scheme] = is_ready(page), page.evaluate(STATE)
        page, _ = pages[width, scheme]
        page.evaluate("document.activeElement.blur(); scrollTo({top: 0, behavior: 'instant'})")
        used.append((width, scheme))
        return page

    yield open_at
    assert not shared_windows.troubles, shared_windows.troubles
    for window in used:
        page, before = pages.pop(window)
        assert page.evaluate(STATE) == before
        pages[window] = page, before


def written(series, place):
    """A point as the page writes it."""
    text = f"{series.y_db[place]:.2f}".replace("-", "−")
    error = series.standard_error_db
    return text if error is None else f"{text} ± {error[place]:.2f}"


def listed(page, chart):
    """The values that a chart lists now: by curve and kind."""
    cells = page.locator(f'[data-chart="{chart}"] .readout td').evaluate_all(
        "cells => cells.map(c => [c.closest('tr').dataset.curve, c.dataset.kind, c.textContent])"
    )
    return {(int(curve), kind): text for curve, kind, text in cells if text}


def expected(data, uplink, x, **other):
    """What a chart should list at x; printed points and theories too."""
    found = {}
    for series in data.panel(uplink):
        [same] = data.select(
            **{"kind": series.kind, "uplink": series.uplink, "label": series.label, **other}
        ) or [None]
        kind = "published-theory" if series.kind == "published" and "theory" in series.label else series.kind
        if same is not None and x in same.x:
            found[series.curve, kind] = written(same, int(np.flatnonzero(same.x == x)[0]))
    return found


def visible(page, chart):
    """The (curve, kind) pairs that Bokeh shows in a chart."""
    found = page.evaluate(
        "name => Bokeh.documents[0].get_model_by_name(name).renderers"
        ".filter(r => r.visible && r.tags.length).map(r => r.tags.slice(0, 2))",
        chart,
    )
    return {(int(curve), kind) for curve, kind in found}


def middle_of(page, chart):
    """The middle of a chart's frame, right of its ordinate, on the screen."""
    place = page.locator(f'[data-chart="{chart}"] .place')
    place.scroll_into_view_if_needed()
    page.wait_for_timeout(50)
    box = place.bounding_box()
    return box["x"] + 45 + (box["width"] - 55) / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_fits_the_window_in_its_colours(opened, screenshot, sideways, width, scheme):
    page = opened(width, scheme)
    assert sideways(page) == []
    folds = "[...document.querySelectorAll('main details')]"
    before = page.evaluate(f"{folds}.map(fold => fold.open)")
    page.evaluate(f"{folds}.forEach(fold => fold.open = true)")
    assert sideways(page) == []
    page.evaluate(f"before => {folds}.forEach((fold, place) => fold.open = before[place])", before)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").split(",")[0])
    assert red > 240 if scheme == "light" else red < 40
    screenshot(page, f"report-{width}-{scheme}")


def test_the_answer_comes_first_with_picture_and_verdicts(opened):
    page = opened()
    for part in (".answer", ".headline .place", ".tiles"):
        box = page.locator(part).bounding_box()
        assert box["y"] + min(box["height"], 200) < 900, part


@pytest.mark.parametrize(
    ("name", "uplink", "x"), [("fig1", "same", 10), ("fig1", "redrawn", 10), ("fig2", "same", 3)]
)
def test_the_mouse_lists_all_series_at_that_place(opened, report, name, uplink, x):
    page = opened()
    page.mouse.move(*middle_of(page, f"{name}-{uplink}"))
    assert listed(page, f"{name}-{uplink}") == expected(report[0][name], uplink, x)
    page.mouse.move(5, 5)
    assert page.locator(f'[data-chart="{name}-{uplink}"] .readout').is_hidden()


def test_a_tap_lists_the_values_below_the_chart(opened, report, sideways, screenshot):
    page = opened(PHONE)
    page.touchscreen.tap(*middle_of(page, "fig1-same"))
    page.wait_for_selector('[data-chart="fig1-same"] .readout:not([hidden])')
    assert listed(page, "fig1-same") == expected(report[0]["fig1"], "same", 10)
    assert sideways(page) == []
    readout = page.locator('[data-chart="fig1-same"] .readout').bounding_box()
    assert readout["x"] >= 0
    assert readout["x"] + readout["width"] <= PHONE
    screenshot(page, "report-tap", full_page=False)
    page.locator('[data-chart="fig1-same"] .place').press("Escape")


def test_the_legend_hides_and_shows_a_curve_in_all_panels(opened, report):
    page = opened()
    before = visible(page, "fig1-same")
    chip = page.locator('#fig1 .chip[data-curve="1"]')
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    for uplink in ("same", "redrawn"):
        assert 1 not in {curve for curve, _ in visible(page, f"fig1-{uplink}")}
    page.mouse.move(*middle_of(page, "fig1-same"))
    assert {curve for curve, _ in listed(page, "fig1-same")} == {0, 2, 3, 4, 5, 6}
    chip.click()
    assert visible(page, "fig1-same") == before
    page.locator('#fig1 .chip[data-kind="published"]').click()
    assert visible(page, "fig1-same") == {one for one in before if one[1] != "published"}
    page.locator('#fig1 .chip[data-kind="published"]').click()
    page.mouse.move(5, 5)


def test_a_name_under_the_pointer_stands_out(opened):
    page = opened()
    faint = (
        "Bokeh.documents[0].get_model_by_name('fig1-same').renderers"
        ".filter(r => r.glyph.type == 'Line' && r.glyph.line_alpha.value < 0.2).map(r => r.tags[0])"
    )
    chip = page.locator('#fig1 .chip[data-curve="3"]')
    chip.hover()
    assert set(page.evaluate(faint)) == {"0", "1", "2", "4", "5", "6"}
    page.mouse.move(5, 5)
    assert page.evaluate(faint) == []


def test_the_ordinate_can_be_another_metric(opened, report):
    page = opened()
    page.locator("#fig2 [data-metric]").select_option("server_msd")
    page.mouse.move(*middle_of(page, "fig2-same"))
    found = listed(page, "fig2-same")
    assert found == expected(report[0]["fig2"], "same", 3, metric="server_msd")
    assert "server MSD" in page.locator('[data-chart="fig2-same"] [data-ordinate]').inner_text()
    page.mouse.move(5, 5)
    page.locator("#fig2 [data-metric]").select_option("network_mse")


def test_zoom_in_by_dragging_and_by_button_and_back(opened):
    page = opened()
    span = "(r => r.end - r.start)(Bokeh.documents[0].get_model_by_name('fig2-same').x_range)"
    whole = page.evaluate(span)
    x, y = middle_of(page, "fig2-same")
    page.mouse.move(x - 80, y - 60)
    page.mouse.down()
    page.mouse.move(x + 80, y + 60, steps=5)
    page.mouse.up()
    assert page.evaluate(span) < 0.7 * whole
    page.locator('#fig2 [data-tool="reset"]').click()
    assert page.evaluate(span) == pytest.approx(whole)
    page.locator('#fig2 [data-tool="in"]').click()
    assert page.evaluate(span) == pytest.approx(0.7 * whole)
    page.locator('#fig2 [data-tool="reset"]').click()


def test_the_switch_switches_page_and_charts(report, open_page, screenshot):
    page = is_ready(open_page(report[1].as_uri()))
    seen = (
        "[getComputedStyle(document.body).color, "
        "Bokeh.documents[0].get_model_by_name('headline').left[0].major_label_text_color]"
    )
    light = page.evaluate(seen)
    page.locator("#theme").click()
    dark = page.evaluate(seen)
    assert light[0] == light[1]
    assert dark[0] == dark[1]
    assert light != dark
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    screenshot(page, "report-switched", full_page=False)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_navigation_stays_and_leads_to_every_figure(opened):
    page = opened()
    page.evaluate("scrollTo({top: document.body.scrollHeight, behavior: 'instant'})")
    assert page.locator(".bar").bounding_box()["y"] == pytest.approx(0, abs=1)
    page.locator('.bar nav a[href="#fig2"]').click()
    page.wait_for_function(
        "() => Math.abs(document.getElementById('fig2').getBoundingClientRect().top - 64) < 40"
    )
    page.wait_for_selector('.bar nav a[href="#fig2"][aria-current]')


def test_on_a_phone_the_contents_and_the_controls_fold(opened, screenshot):
    page = opened(PHONE)
    link = page.locator('.bar nav a[href="#fig9"]')
    assert not link.is_visible()
    page.locator(".menu summary").click()
    assert link.is_visible()
    screenshot(page, "report-menu", full_page=False)
    link.click()
    assert not link.is_visible()
    page.wait_for_function(
        "() => Math.abs(document.getElementById('fig9').getBoundingClientRect().top - 64) < 40"
    )
    tool = page.locator('#fig9 [data-tool="in"]')
    assert not tool.is_visible()
    page.locator("#fig9 .controls summary").click()
    assert tool.is_visible()
    page.locator("#fig9 .controls summary").click()


def test_the_keyboard_reaches_every_control(opened, report):
    page = opened()
    reached = []
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(e => [e.closest('[data-figure]')?.dataset.figure ?? '', e.id || e.dataset.tool || e.dataset.curve || "
                "e.tagName.toLowerCase() + '.' + e.className].join(' '))(document.activeElement)"
            )
        )
        if reached[-1] == "fig1 reset":
            break
    wanted = {
        " theme",
        " a.tile partly",
        "headline 0",
        "headline div.place",
        "fig1 0",
        "fig1 div.place",
        "fig1 reset",
    }
    assert wanted <= set(reached), reached
    page.locator('[data-chart="fig2-same"] .place').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert listed(page, "fig2-same") == expected(report[0]["fig2"], "same", 2)
    page.keyboard.press("Escape")
    assert page.locator('[data-chart="fig2-same"] .readout').is_hidden()
    page.locator('#fig2 .chip[data-curve="0"]').focus()
    page.keyboard.press("Enter")
    assert 0 not in {curve for curve, _ in visible(page, "fig2-same")}
    page.keyboard.press("Enter")


def test_every_picture_has_words_and_a_table_behind_it(opened, report):
    page = opened()
    places = page.locator(".place")
    assert places.count() == 7
    for place in places.all():
        assert "MSE" in place.get_attribute("aria-label")
        assert place.get_attribute("role") == "img"
    for name, data in report[0].items():
        assert page.locator(f"#{name} table:not(.readout table)").count() == len(data.panels)


def test_it_prints_light_and_whole_and_figures_copy_as_pictures(report, open_page):
    page = is_ready(open_page(report[1].as_uri(), scheme="dark"))
    page.locator("#fig2 [data-copy]").click()
    page.locator("#fig2 [data-copy] + span", has_text="copied").wait_for()
    kinds = page.evaluate("navigator.clipboard.read().then(items => items[0].types)")
    assert kinds == ["image/png"]
    assert page.locator("#fig2 .permalink").get_attribute("href") == "#fig2"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    pictures = page.locator("img.print:visible")
    assert pictures.count() == 4  # the opening one, and one of each figure
    assert all(picture.evaluate("e => e.complete && e.naturalWidth > 500") for picture in pictures.all())
    assert page.locator(".place:visible").count() == 0
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) <= 14
