"""The report opens from disk in a real browser and draws all figures."""

import re
import shutil
import subprocess

import pytest

from psofed.paper.figures import figure_names

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browse(page, profile, *options):
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000",
    )  # fmt: skip
    command = [BROWSER, *flags, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_draws_every_figure_without_an_error(saved, tmp_path):
    _, _, page = saved
    document = browse(page, tmp_path / "profile", "--dump-dom")
    body = re.search(r"<body[^>]*>", document)[0]
    assert f'data-drawn="{len(figure_names())}"' in body
    assert "data-error" not in body
    for name in figure_names():
        chart = document.split(f'id="{name}-chart"')[1].split("<details>")[0]
        assert chart.count('role="img"') == 2
        assert chart.count("<path") > 50
        assert "NaN" not in chart
        assert "undefined" not in chart


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_page_looks_like_something(saved, tmp_path):
    from matplotlib.image import imread

    _, _, page = saved
    picture = tmp_path / "page.png"
    browse(
        page, tmp_path / "profile", "--window-size=1200,5200", "--hide-scrollbars", f"--screenshot={picture}"
    )
    pixels = imread(picture)[..., :3]
    assert pixels.shape[:2] == (5200, 1200)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):  # curves in the palette's first colours
        near = abs(pixels - [channel / 255 for channel in colour]).max(axis=2) < 0.02
        assert near.sum() > 500


def test_the_page_needs_nothing_from_elsewhere(saved):
    _, _, page = saved
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)
    assert "url(" not in text.split("<script")[0]
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|import)\s*\(", text)


def test_the_page_tells_claims_scenarios_machine_versions_and_seed(saved):
    _, claims, page = saved
    text = page.read_text(encoding="utf-8")
    assert text.count("<tr>") == 1 + len(claims)
    for claim in claims:
        assert claim.verdict in text
    for words in (
        "num_clients = 50",
        "num_clients = 100",
        "seed",
        "processor",
        "numba",
        "wall time",
        "PhD thesis",
    ):
        assert words in text
    assert text.count("data:image/svg+xml;base64,") == len(figure_names())


def test_data_in_the_page_cannot_end_its_script(saved):
    _, _, page = saved
    text = page.read_text(encoding="utf-8")
    data = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    import json

    assert [figure["figure"] for figure in json.loads(data)["figures"]] == list(figure_names())
