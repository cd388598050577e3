"""The explorer in a real browser: what the page says is what the library says."""

import math
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import chromium
import pytest

import psofed
from psofed.explore.drafts import to_address
from psofed.paper.figures import load_figure

pytestmark = [pytest.mark.explore, pytest.mark.slow, pytest.mark.takes(100)]

if find_spec("panel") is None:  # not imported here, where every worker collects
    pytest.skip("the explorer's extra is not installed", allow_module_level=True)

READY = 90_000  # milliseconds: machines that run many tests at once are slow


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


def shown(value: float) -> str:
    return f"{10 * math.log10(value):.2f} dB".replace("-", "−")


def wait_for(page: Any, text: str, kind: str = "sentence") -> None:
    page.locator(f"p.{kind}", has_text=text).first.wait_for(timeout=READY)


def row(page: Any, title: str) -> Any:
    return page.locator("tr", has=page.locator(f"th:text-is('{title}')"))


def expect_numbers(page: Any, scenario: psofed.Scenario) -> None:
    """Wait until the table shows what `psofed.predict` says."""
    prediction = psofed.predict(scenario)
    for title, metric in (("network MSE", "network_mse"), ("server MSD", "server_msd"), ("test MSE", "test_mse")):
        text = shown(getattr(prediction, metric))
        try:
            row(page, title).locator("td", has_text=text).first.wait_for(timeout=READY)
        except Exception:
            raise AssertionError(f"{title}: {row(page, title).inner_text()}, not {text}") from None


def put(page: Any, name: str, text: str) -> None:
    """Type into a field of the form."""
    box = page.locator(f".field-{name} input[type=text]")
    box.fill(text)
    box.press("Enter")


def choose(page: Any, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).select_option(label=option)


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_another_web_page_cannot_reach_the_explorer(address: str, browser: Any, tmp_path: Path) -> None:
    """A page of another port of 127.0.0.1 is same-site: the browser sends it the explorer's cookie along."""
    base = address.partition("?")[0]
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
        page.wait_for_function("!location.href.includes('token')", timeout=READY)
        page.reload()
        expect_numbers(page, small_fleet())
        elsewhere.shutdown()
    context.close()


def test_sliders_presets_and_downloads(address: str, open_page: Any, sideways: Any, screenshot: Any) -> None:
    page = open_page(address)
    fleet = small_fleet()
    expect_numbers(page, fleet)
    wait_for(page, "Sharing 1 of 4 parameters with stepsize 0.08 gives −")
    row(page, "honest MSE").get_by_text(shown(psofed.predict(fleet).honest_mse)).wait_for(timeout=READY)
    page.wait_for_function("!location.href.includes('token')", timeout=READY)

    # Unstable is said once, and the best stepsize is one click away
    put(page, "stepsize", "0.9")
    wait_for(page, "Unstable: stepsize 0.9 exceeds")
    page.get_by_role("button", name="Use the best stepsize").and_(page.locator(":enabled")).click(timeout=READY)
    best = fleet.replace(stepsize=psofed.tune(fleet, shared=(1,)).recommended.stepsize)
    wait_for(page, f"with stepsize {best.stepsize:.3g}")
    put(page, "stepsize", "0.08")
    expect_numbers(page, fleet)

    # A slider under the keyboard, and a mistake
    page.locator(".field-num-shared [role=slider]").focus()
    page.keyboard.press("ArrowRight")
    expect_numbers(page, fleet := fleet.replace(num_shared=2))
    put(page, "num-shared", "9")
    page.get_by_text("num_shared must be between 1 and 4 (the dimension); got 9.").wait_for(timeout=READY)
    put(page, "num-shared", "2")

    # Every group of settings opens
    for group in page.get_by_label("Settings", exact=True).locator("option").all_inner_texts():
        choose(page, "Settings", group)
    choose(page, "Settings", "Essentials")
    page.locator(".field-attack-probability").wait_for(timeout=READY)

    # What is downloaded is what is shown
    page.get_by_text("Copy and download").click()
    assert sideways(page) == []
    for name in ("scenario.toml", "numbers.csv"):
        with page.expect_download() as saved:
            page.locator("a", has_text=name).click()
        text = Path(saved.value.path()).read_text(encoding="utf-8")
        if name == "scenario.toml":
            assert psofed.Scenario.from_toml(text) == fleet
        else:
            assert text.startswith("source,axis,x,metric,mean,low,high,trials")
    press(page, "Copy")
    assert page.evaluate("navigator.clipboard.readText()").startswith("psofed predict scenario.toml\n")

    # Loading the page again keeps the settings
    page.reload()
    expect_numbers(page, fleet)

    # A figure of the paper opens
    choose(page, "Start from", f"Figure 5: {load_figure('fig5').title}")
    expect_numbers(page, load_figure("fig5").example())
    press(page, "Time")
    page.get_by_text("Line: exact theory.").wait_for(timeout=READY)


def test_what_theory_does_not_cover_is_simulated_on_request(address: str, open_page: Any, screenshot: Any) -> None:
    page = open_page(address)
    expect_numbers(page, small_fleet())
    page.locator(".field-aggregation select").select_option("median")
    wait_for(page, "not simulated yet")
    wait_for(page, 'not "median". Press Simulate.', "note")
    screenshot(page, "explorer_uncovered")
    press(page, "Simulate")
    wait_for(page, "256 simulated trials")
    page.get_by_role("button", name="Simulate", exact=True).wait_for(timeout=READY)
    simulated = psofed.simulate(small_fleet().replace(aggregation="median"), trials=256)
    assert shown(simulated.network_mse.mean).removesuffix(" dB") in row(page, "network MSE").inner_text()
    # A simulation can be stopped, and the page stays awake meanwhile
    choose(page, "Settings", "Fleet")
    put(page, "iterations", "100000")
    wait_for(page, "not simulated yet")
    press(page, "Simulate")
    wait_for(page, "Simulating, ", "note")
    screenshot(page, "explorer_simulating")
    press(page, "Stop")
    wait_for(page, "Press Simulate.", "note")


def test_a_hostile_address_is_refused_in_words(address: str, open_page: Any) -> None:
    page = open_page(f'{address}&scenario={{"num_clients":1000000000,"dimension":5}}')
    wait_for(page, "The settings in the address are refused: num_clients must be", "note")
    expect_numbers(page, small_fleet())
    other = small_fleet().replace(num_shared=3)
    page = open_page(f"{address}&{to_address(other, 'network_mse')}")
    expect_numbers(page, other)


@pytest.mark.parametrize("width", [1400, 390])
def test_it_fits_wide_and_narrow_windows_by_day_and_by_night(
    address: str, open_page: Any, sideways: Any, screenshot: Any, width: int
) -> None:
    is_phone = width < 600
    page = open_page(address, width=width, height=844 if is_phone else 900, touch=is_phone)
    row(page, "under the worst attack of the same power").wait_for(timeout=READY)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert sideways(page) == []
        screenshot(page, f"explorer_{width}_{scheme}")
    sizes = page.evaluate(SMALLEST)
    assert min(sizes) >= 11, sizes
    if is_phone:  # the sentence stays in sight above the slider
        page.locator(".field-stepsize [role=slider]").evaluate("e => e.scrollIntoView({block: 'center'})")
        assert page.locator(".sentences").bounding_box()["y"] == pytest.approx(0, abs=1)


# Font sizes of all texts, in and out of shadow roots
SMALLEST = """() => {
  const sizes = new Set();
  const walk = (root) => {
    for (const e of root.querySelectorAll('*')) {
      const isText = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
      if (isText && e.getClientRects().length) sizes.add(parseFloat(getComputedStyle(e).fontSize));
      if (e.shadowRoot) walk(e.shadowRoot);
    }
  };
  walk(document.body);
  return [...sizes];
}"""
