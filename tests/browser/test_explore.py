"""The explorer in a real browser: what the page says is what the library says."""

import json
import math
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import chromium
import pytest

import psofed
from psofed.explore.glossary import GLOSSARY
from psofed.explore.headline import difference
from psofed.paper.figures import load_figure

pytestmark = [pytest.mark.explore, pytest.mark.slow, pytest.mark.takes(100)]

if find_spec("panel") is None:  # not imported here, where every worker collects
    pytest.skip("the explorer's extra is not installed", allow_module_level=True)

READY = 120_000  # milliseconds: machines that run many tests at once are slow


@pytest.fixture(scope="module")
def address(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One explorer for all tests, as a user starts it, on a small fleet."""
    folder = tmp_path_factory.mktemp("explore")
    file = folder / "fleet.toml"
    file.write_text(small_fleet().to_toml(), encoding="utf-8")
    with chromium.explorer(str(file)) as address:
        yield address


def small_fleet() -> psofed.Scenario:
    attack = psofed.attacks.Gaussian(num_byzantine=4)
    return psofed.Scenario(
        num_clients=12, dimension=4, num_participants=3, stepsize=0.08, iterations=300, attack=attack
    )


def wait_for(page: Any, selector: str, text: str) -> None:
    page.locator(selector, has_text=re.compile(f"^{re.escape(text)}$")).wait_for(timeout=READY)


def shown(value: float) -> str:
    return f"{10 * math.log10(value):.2f} dB".replace("-", "−")


def expect_numbers(page: Any, scenario: psofed.Scenario, side: str = "A") -> None:
    """Wait until the tiles of a side show what `psofed.predict` says."""
    prediction = psofed.predict(scenario)
    for metric in ("network_mse", "server_msd", "test_mse"):
        selector, text = f"#{metric}-{side}:not(.stale)", shown(getattr(prediction, metric))
        try:
            page.locator(selector, has_text=text).wait_for(timeout=READY)
        except Exception:
            raise AssertionError(f"{metric}: {page.inner_text(f'#{metric}-{side}')}, not {text}") from None


def move(page: Any, name: str, position: float) -> None:
    """Move a slider as a hand does: the browser tells of an input."""
    slider = page.locator(f"#field-{name.replace('.', '-')}-slider")
    slider.evaluate(
        "(e, p) => { e.value = p; e.dispatchEvent(new Event('input', {bubbles: true})); }", position
    )


def test_another_web_page_cannot_reach_the_explorer(address: str, browser: Any, tmp_path: Path) -> None:
    """A page of another port of 127.0.0.1 is same-site: the browser sends it the explorer's cookie along."""
    base, _, token = address.partition("?")
    foreign = """<!doctype html><title>elsewhere</title><script>
      const tried = (element, url) => new Promise((resolve) => {
        element.onload = () => resolve("loaded"); element.onerror = () => resolve("failed");
        element.src = url; document.body.append(element);
      });
      const knock = (url) => new Promise((resolve) => {
        const socket = new WebSocket(url);
        socket.onopen = () => resolve("open"); socket.onerror = () => resolve("failed");
      });
      window.attack = async (base) => ({
        image: await tried(new Image(), base + "components/antigravity/x/css/y"),
        script: await tried(document.createElement("script"), base + "static/js/bokeh.min.js"),
        fetch: await fetch(base, {mode: "no-cors", credentials: "include"}).then(() => "opaque", () => "failed"),
        socket: await knock(base.replace("http", "ws") + "ws"),
      });
    </script><body></body>"""
    (tmp_path / "index.html").write_text(foreign, encoding="utf-8")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    context = browser.new_context()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        own = context.new_page()
        own.goto(address)
        expect_numbers(own, small_fleet())
        for host in ("127.0.0.1", "localhost"):
            page = context.new_page()
            page.goto(f"http://{host}:{elsewhere.server_port}/")
            answers: dict[str, int] = {}
            page.on("response", lambda r, answers=answers: answers.__setitem__(r.url, r.status))
            assert page.evaluate("base => attack(base)", base) == {
                "image": "failed", "script": "failed", "fetch": "opaque", "socket": "failed",
            }  # fmt: skip
            assert [status for url, status in answers.items() if url.startswith(base)] == [403] * 3
        # A link with the token opens the page, and reloading it works although its address has lost the token.
        page.evaluate("url => { location.href = url }", address)
        expect_numbers(page, small_fleet())
        assert token not in page.url
        page.reload()
        expect_numbers(page, small_fleet())
        elsewhere.shutdown()
    context.close()


def test_sliders_presets_sides_and_copies(
    address: str, open_page: Any, sideways: Any, screenshot: Any
) -> None:
    page = open_page(address)
    fleet = small_fleet()
    expect_numbers(page, fleet)
    assert page.inner_text("#sentence").startswith("Sharing 1 of 4 parameters with stepsize 0.08 gives −")

    # The simple level: five sliders, what they mean, and the best stepsize
    assert page.locator("#form .field").count() == 5
    assert page.inner_text("#field-stepsize-note") == GLOSSARY["Stepsize (learning rate)"]
    page.fill("#field-stepsize", "0.9")
    page.locator("#sentence", has_text="Unstable: stepsize 0.9 exceeds").wait_for(timeout=READY)
    page.locator(".card.empty .why", has_text="Unstable: stepsize 0.9 exceeds").first.wait_for(timeout=READY)
    assert page.locator("#sentence .trouble").count() == 0
    page.locator("#use-best:not([disabled])").click(timeout=READY)
    best = fleet.replace(stepsize=psofed.tune(fleet, shared=(1,)).recommended.stepsize)
    page.locator("#sentence", has_text=f"with stepsize {best.stepsize:.2g} gives").wait_for(timeout=READY)
    page.go_back()
    page.locator("#sentence", has_text="Unstable").wait_for(timeout=READY)
    page.click("#undo")
    expect_numbers(page, fleet)
    assert page.is_disabled("#undo")
    assert page.input_value("#field-stepsize") == "0.08"
    page.click("#level-expert")
    page.click("[aria-controls=field-stepsize-note]")
    assert page.inner_text("#field-stepsize-note") == GLOSSARY["Stepsize (learning rate)"]

    # Sliders, and a field that is typed into
    move(page, "num_shared", 3)
    expect_numbers(page, fleet := fleet.replace(num_shared=3))
    move(page, "stepsize", 500)
    stepsize = float(page.input_value("#field-stepsize"))
    assert page.get_attribute("#field-stepsize-slider", "aria-valuetext") == f"{stepsize:g}"
    expect_numbers(page, fleet := fleet.replace(stepsize=stepsize))
    page.fill("#field-attack-variance", "1.5")
    expect_numbers(page, fleet := fleet.replace(attack=fleet.attack.replace(variance=1.5)))
    page.select_option("#field-attack-kind", "sign-flip")
    attack = psofed.attacks.SignFlip(num_byzantine=4, probability=0.2)
    expect_numbers(page, fleet := fleet.replace(attack=attack))

    # A bad value is marked, and the last good numbers stay
    page.fill("#field-num_shared", "7")
    message = "num_shared must be between 1 and 4 (the dimension); got 7."
    wait_for(page, "#field-num_shared-note", message)
    assert page.get_attribute("#field-num_shared", "aria-invalid") == "true"
    expect_numbers(page, fleet)
    page.fill("#field-num_shared", "2")
    expect_numbers(page, fleet := fleet.replace(num_shared=2))
    assert page.get_attribute("#field-num_shared", "aria-invalid") is None

    # B beside A
    page.click("#compare")
    wait_for(page, "#form .sides button:nth-child(2)", "Settings of B")
    page.fill("#field-num_shared", "4")
    expect_numbers(page, fleet.replace(num_shared=4), "B")
    expect_numbers(page, fleet, "A")
    a, b = (psofed.predict(fleet.replace(num_shared=m)).network_mse for m in (2, 4))
    wait_for(page, "#network_mse-difference", f"B − A{difference(a, b)}")

    # What is copied is what is shown, of the side that is looked at
    page.click("#share")
    page.click("#copy-toml")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert psofed.Scenario.from_toml(copied) == fleet.replace(num_shared=4)
    page.click("#copy-link")
    link = page.evaluate("navigator.clipboard.readText()")
    assert sideways(page) == []
    screenshot(page, "explorer_copies")
    with page.expect_download() as saved:
        page.click("#download-json")
    numbers = json.loads(Path(saved.value.path()).read_text(encoding="utf-8"))
    assert numbers["A"]["theory"]["point"]["network_mse"] == pytest.approx(a)
    with page.expect_download() as saved:
        page.click("#download-csv")
    assert Path(saved.value.path()).read_text(encoding="utf-8").startswith("side,source,chart,x,metric,y")

    # Another preset, for B
    page.select_option("#preset", "readme")
    readme = psofed.Scenario(
        num_clients=50, dimension=5, stepsize=0.0766, attack=psofed.attacks.Gaussian(num_byzantine=15)
    )
    expect_numbers(page, readme, "B")

    # A figure of the paper opens on both sides, and is drawn
    page.select_option("#preset", "fig5")
    for side, scenario in zip("AB", load_figure("fig5").examples(), strict=True):
        expect_numbers(page, scenario, side)
    page.locator(".card:first-child figcaption", has_text="Lines: exact theory").wait_for(timeout=READY)
    screenshot(page, "explorer_figure")
    page.click("#undo")
    expect_numbers(page, readme, "B")
    page.locator(".card").first.wait_for(state="hidden", timeout=READY)  # it follows the numbers

    # The link restores both sides
    page = open_page(link)
    expect_numbers(page, fleet, "A")
    expect_numbers(page, fleet.replace(num_shared=4), "B")


def test_where_theory_refuses_the_page_says_why_and_simulates(
    address: str, open_page: Any, screenshot: Any
) -> None:
    page = open_page(f"{address}&{query(small_fleet().replace(aggregation='median'))}")
    page.locator("#sentence", has_text='not "median"').wait_for(timeout=READY)
    page.locator("#status", has_text="256 trials simulated").wait_for(timeout=2 * READY)
    simulated = psofed.simulate(small_fleet().replace(aggregation="median"), trials=256)
    assert page.inner_text("#simulated-A") == shown(simulated.network_mse.mean)
    assert page.locator("#sentence .trouble").count() == 0
    assert page.locator(".card.empty").count() == 1  # the sources of error
    # Growing dots can be stopped, and the page stays awake meanwhile
    page.click("#level-expert")
    page.fill("#field-iterations", "100000")
    page.locator("#simulate", has_text="Stop").wait_for(timeout=READY)
    page.fill("#field-num_shared", "9")
    page.locator("#field-num_shared-note", has_text="must be").wait_for(timeout=READY)
    page.click("#simulate")
    wait_for(page, "#simulate", "Simulate")
    screenshot(page, "explorer_median")


def test_a_hostile_link_is_refused_in_words(address: str, open_page: Any) -> None:
    page = open_page(f"{address}&num_clients=1000000000&dimension=5&stepsize=nan")
    message = "The settings of the link are refused: num_clients must be"
    page.locator("#sentence .trouble", has_text=message).wait_for(timeout=READY)
    expect_numbers(page, small_fleet())


def test_theory_that_takes_long_says_why_and_can_be_stopped(address: str, open_page: Any) -> None:
    """Round-robin masks of the clients' own take a minute; the form stays awake, and a mistake in it is marked."""
    masks = psofed.Selection(pattern="round-robin", coordinated=False)
    slow = psofed.Scenario(num_clients=60, dimension=12, num_shared=5, selection=masks)
    page = open_page(f"{address}&{query(slow)}&attack.kind=gaussian&attack.num_byzantine=99")
    page.locator("#field-attack-kind-note", has_text="attack.num_byzantine must be").wait_for(timeout=READY)
    page.locator("#sentence .slow", has_text="with round-robin masks").wait_for(timeout=READY)
    page.click(".stop-theory")
    page.locator("#sentence", has_text="Theory was stopped.").wait_for(timeout=READY)
    page.fill("#field-num_shared", "13")
    page.locator("#field-num_shared-note", has_text="must be").wait_for(timeout=READY)


def test_a_number_of_any_size_leaves_the_page_alive(address: str, open_page: Any) -> None:
    page = open_page(address)
    expect_numbers(page, small_fleet())
    page.click("#level-expert")
    page.fill("#field-attack-variance", "1e308")
    page.fill("#field-num_clients", "1000000000")
    page.locator("#field-num_clients-note", has_text="the explorer's limit").wait_for(timeout=READY)
    page.fill("#field-num_clients", "12")
    page.fill("#field-attack-variance", "0.5")
    expect_numbers(page, small_fleet())


@pytest.mark.parametrize("width", [1400, 390])
def test_it_fits_wide_and_narrow_windows_by_day_and_by_night(
    address: str, open_page: Any, sideways: Any, screenshot: Any, width: int
) -> None:
    is_phone = width < 600
    page = open_page(address, width=width, height=844 if is_phone else 900, touch=is_phone)
    expect_numbers(page, small_fleet())
    page.locator("#best_stepsize-A:not(.stale)").wait_for(timeout=READY)
    for scheme, ink in (("light", "rgb(29, 37, 48)"), ("dark", "rgb(228, 233, 240)")):
        page.emulate_media(color_scheme=scheme)
        assert page.locator("#sentence").evaluate("e => getComputedStyle(e).color") == ink
        assert sideways(page) == []
        page.wait_for_timeout(300)  # for the charts to change their ink
        screenshot(page, f"explorer_{width}_{scheme}")
    if is_phone:
        page.click("#settings > summary")
        page.locator("#field-stepsize").wait_for()
        assert sideways(page) == []
        # The sentence stays in sight above the slider.
        page.locator("#field-stepsize-slider").evaluate("e => e.scrollIntoView({block: 'center'})")
        assert page.locator("#sentence").bounding_box()["y"] == pytest.approx(0, abs=1)
    # Everything has a label, and sliders follow the keyboard
    nameless = page.locator("#form").evaluate(
        """form => [...form.querySelectorAll('input, select')]
            .filter(e => !e.labels.length && !e.getAttribute('aria-label')).map(e => e.id)"""
    )
    assert nameless == []
    page.focus("#field-num_shared-slider")
    page.keyboard.press("ArrowRight")
    expect_numbers(page, small_fleet().replace(num_shared=2))


def query(scenario: psofed.Scenario) -> str:
    from psofed.explore.settings import PageSettings, to_query

    return to_query(PageSettings({"A": scenario.to_mapping()}))


def test_the_copied_commands_and_python_run(tmp_path: Path) -> None:
    from psofed.explore.exports import Origin, as_command, as_python

    fleet = small_fleet()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = as_command(fleet, Origin(), predictable=True)
    done = subprocess.run(
        ["sh", "-e", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"{psofed.predict(fleet).network_mse:.5g}" in done.stdout
    assert tomllib.loads((tmp_path / "scenario.toml").read_text(encoding="utf-8"))["num_clients"] == 12
    lines = as_python(fleet, Origin(), predictable=True)
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) == psofed.predict(fleet).network_mse
