"""What the report says, and that it needs nothing but itself; how it looks is tested in tests/browser."""

import dataclasses
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from psofed.paper.charts import LOOKS, look_of
from psofed.paper.claims import HOLDS, PARTLY
from psofed.paper.figures import figure_names
from psofed.paper.report import answer, typeset, write_page
from psofed.paper.reproduce import save_reproduction
from psofed.scenario import UPLINKS

pytestmark = [pytest.mark.paper, pytest.mark.render]

CSS = files("psofed.paper").joinpath("page.css").read_text("utf-8")
COLOURS = {name: (light, dark) for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\);", CSS)}


def text_of(saved):
    return saved[2].read_text(encoding="utf-8")


def luminance(colour):
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_what_the_standard_says():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "muted", "accent", "good", "some", "bad"])
@pytest.mark.parametrize("ground", ["page", "panel"])
def test_text_has_the_contrast_of_level_aa(scheme, ink, ground):
    assert contrast(COLOURS[ink][scheme], COLOURS[ground][scheme]) >= 4.5


def test_text_on_the_accent_has_the_contrast_of_level_aa():
    for scheme in (0, 1):
        assert contrast(COLOURS["page"][scheme], COLOURS["accent"][scheme]) >= 4.5


@pytest.mark.parametrize("label", LOOKS)
def test_every_curve_can_be_seen_on_the_white_of_pictures(label):
    """Graphics need 3 to 1."""
    assert contrast(LOOKS[label].colour, "#ffffff") >= 3


def test_every_curve_of_the_figures_has_a_look_of_its_own_kept_in_all_figures(reproduction):
    for data in reproduction.figures.values():
        looks = [look_of(label, curve) for curve, label in data.curve_labels.items()]
        assert len({look.colour for look in looks}) == len(looks)
        assert all(label in LOOKS for label in data.curve_labels.values())


def test_the_right_panel_of_figure_1_shows_only_what_it_has(reproduction):
    panel = reproduction.figures["fig1"].panel("redrawn")
    assert {series.label.removesuffix(", printed simulation") for series in panel} == {"PSO-Fed", "Online-Fed"}


def test_the_page_needs_nothing_from_elsewhere(saved):
    text = text_of(saved)
    assert "default-src 'none'" in text
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text_of(saved))
    assert "url(" not in CSS
    assert "<script" not in text
    assert len(text) < 4_000_000


def test_the_page_is_well_formed(saved):
    open_tags: list[str] = []
    void = {"meta", "link", "br", "img", "input", "path", "circle"}

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in void:
                open_tags.append(tag)

        def handle_endtag(self, tag):
            if tag not in void:
                assert open_tags.pop() == tag

    Reader().feed(text_of(saved))
    assert open_tags == []
    names = re.findall(r'\bid="([^"]+)"', text_of(saved))
    assert len(names) == len(set(names))
    for target in re.findall(r'href="#([^"]+)"', text_of(saved)):
        assert target in names


def test_the_page_tells_claims_scenarios_machine_versions_and_seed(saved):
    _, claims, _ = saved
    text = text_of(saved)
    assert text.count("<article") == len(claims)
    words = ("num_clients = 50", "num_clients = 100", "seed", "system", "numba", "wall time", "PhD thesis")
    for word in words:
        assert word in text


def test_the_tables_hold_every_point(saved, reproduction):
    text = text_of(saved)
    for name in figure_names():
        section = text.split(f'id="{name}"')[1].split("</section>")[0]
        data = reproduction.figures[name]
        for uplink in UPLINKS:
            for series in data.panel(uplink):
                for level in series.y_db:
                    assert f"{level:.2f}".replace("-", "−") in section


def test_symbols_are_typeset_and_numbers_stay_with_their_units(saved):
    text = re.sub(r"<(pre|style|title)\b.*?</\1>", "", text_of(saved), flags=re.DOTALL)
    seen = re.sub(r"<[^>]*>", "", text)
    for raw in ("S_B", "σ_B", "p_a", "E_ω", "E_φ"):
        assert raw not in seen
    assert "|<i>S</i><sub>B</sub>|" in text
    assert typeset("μ* = 0.03, dB & <b>") == "<i>μ</i>*\u00a0=\u00a00.03, dB &amp; &lt;b&gt;"


def test_tiles_count_the_verdicts_and_what_this_run_does_not_confirm(saved, reproduction, tmp_path):
    folder, claims, _ = saved
    for name in figure_names():
        (tmp_path / f"{name}.svg").write_bytes((folder / f"{name}.svg").read_bytes())
    doubted = [dataclasses.replace(claims[0], agrees=False, outcome="This run disagrees."), *claims[1:]]
    text = write_page(reproduction, doubted, tmp_path).read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"<b>(\d+)</b> <span class=\"sign\"", text)]
    assert numbers == [*(sum(claim.verdict == verdict for claim in claims) for verdict in (HOLDS, PARTLY)), 1]
    assert "<strong>This run disagrees.</strong>" in text


def test_the_answer_turns_when_the_numbers_do(reproduction):
    data = reproduction.figures["fig1"]
    assert answer(reproduction.figures).startswith("Yes. With 20 of 100 clients Byzantine")
    names = {"PSO-Fed": "Online-Fed", "Online-Fed": "PSO-Fed"}
    series = tuple(dataclasses.replace(one, label=names.get(one.label, one.label)) for one in data.series)
    assert answer({"fig1": dataclasses.replace(data, series=series)}).startswith("No.")
    assert "figure 6 and figure 9 only" in answer({"fig6": data, "fig9": data})


def test_one_figure_makes_a_page(reproduction, tmp_path):
    some, steps = {"fig9": reproduction.figures["fig9"]}, []
    _, page = save_reproduction(
        dataclasses.replace(reproduction, figures=some), tmp_path, lambda *step: steps.append(step)
    )
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/svg+xml") == 1
    assert steps == [(1, 2), (2, 2)]
