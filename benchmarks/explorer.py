"""How soon theory is on the screen after a slider of `psofed explore` moves, in a real Chromium.

Every slider of the essentials is moved several times by its keyboard. The clock runs from the key to the frame that
shows the new number. What came before is still being refined when a slider moves, as under a hand that does not wait.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks._timing import markdown_table
from psofed import Data, Scenario
from psofed.attacks import Gaussian
from psofed.explore.drafts import to_address

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

PRESETS = ("README: 50 clients, 15 Byzantine", "100 clients", "100 clients, correlated inputs")
FLEETS = {
    PRESETS[1]: Scenario(num_clients=100, dimension=5, stepsize=0.05, attack=Gaussian(num_byzantine=30)),
    PRESETS[2]: Scenario(
        num_clients=100, dimension=5, stepsize=0.05, attack=Gaussian(num_byzantine=30),
        data=Data(input_correlation=0.5),
    ),
}  # fmt: skip
MOVES = 5  # of each slider
PAUSE = 250  # milliseconds between a number and the next move

# The time from a key press on a slider until the sentence shows a number of the new settings.
MOVE = """
(handle) => new Promise((resolve) => {
  const find = (root) => {
    const hit = root.querySelector('p.sentence');
    if (hit) return hit;
    for (const e of root.querySelectorAll('*')) {
      const deep = e.shadowRoot && find(e.shadowRoot);
      if (deep) return deep;
    }
    return null;
  };
  const before = find(document).textContent, start = performance.now();
  const look = () => {
    const text = find(document)?.textContent ?? '';
    if (text !== before && !text.endsWith('…')) return resolve(performance.now() - start);
    if (performance.now() - start > 20000) return resolve(null);
    requestAnimationFrame(look);
  };
  handle.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
  requestAnimationFrame(look);
})
"""


def run() -> str:
    """Return a table of medians and 95th percentiles by fleet; or why there is none."""
    import chromium

    if reason := chromium.why_none():
        return f"Not measured: {reason}."
    rows = []
    with chromium.explorer() as address, chromium.chromium() as browser:
        for name in PRESETS:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            query = to_address(FLEETS[name], "network_mse") if name in FLEETS else ""
            page.goto(f"{address}&{query}")
            _wait(page)
            rows.append([name, *_summary(_measure(page))])
            page.close()
    return markdown_table(["milliseconds until the number is shown", "moves", "median", "95 %", "longest"], rows)


def _measure(page: Any) -> list[float]:
    times = []
    for handle in page.locator(".form [role=slider]").element_handles():
        for _ in range(MOVES):
            page.wait_for_timeout(PAUSE)
            times.append(handle.evaluate(MOVE))
    return [time for time in times if time is not None]


def _wait(page: Any) -> None:
    page.locator("p.sentence", has_text="gives").wait_for(timeout=60_000)
    page.wait_for_timeout(PAUSE)


def _summary(times: list[float]) -> list[str]:
    if not times:
        return ["0", "", "", ""]
    last = statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
    return [str(len(times)), f"{statistics.median(times):.0f}", f"{last:.0f}", f"{max(times):.0f}"]
