"""How soon theory is on the screen after a slider of `psofed explore` moves, in a real Chromium.

Every slider of the form is moved several times from each preset. The clock runs from the browser's input event to the
end of the frame that shows the new number. What came before is still being refined when a slider moves, as under a
hand that does not wait.
"""

import random
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks._timing import markdown_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

PRESETS = ("readme", "fig1", "fig4", "fig8")  # 50 clients, but 100 in Fig. 1
MOVES = 3  # of each slider
# Which part of a slider is used where not all of it makes sense: K stays at most 50, a range's ends in order.
SHARES = {"num_clients": (0.1, 0.25), "low": (0.02, 0.2), "high": (0.6, 0.9)}
PAUSE = 250  # milliseconds between a number and the next move

# One move in the page: the time until the tile shows a number of the new settings, which is when it ceases to be stale.
MOVE = """
([id, share]) => new Promise((resolve) => {
  const find = (root, id) => {
    const hit = root.getElementById?.(id);
    if (hit) return hit;
    for (const e of root.querySelectorAll('*')) {
      const deep = e.shadowRoot && find(e.shadowRoot, id);
      if (deep) return deep;
    }
    return null;
  };
  const slider = find(document, id), numbers = find(document, 'numbers'), sentence = find(document, 'sentence');
  const [low, high] = [Number(slider.min), Number(slider.max)];
  const before = slider.value;
  slider.value = low + share * (high - low);
  if (slider.value === before) return resolve(null);
  let begun = false;
  const start = performance.now();
  const observer = new MutationObserver(() => {
    const stale = sentence.classList.contains('stale');
    if (stale) begun = true;
    if (!begun || stale) return;
    observer.disconnect();
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => resolve(performance.now() - start);
      port2.postMessage(0);
    });
  });
  observer.observe(sentence, { attributes: true, childList: true, subtree: true });
  setTimeout(() => { observer.disconnect(); resolve(-1); }, 20000);
  slider.dispatchEvent(new Event('input', { bubbles: true }));
})
"""


def run() -> str:
    """Return a table of medians and 95th percentiles by preset, and one by slider; or why there is none."""
    import chromium

    if reason := chromium.why_none():
        return f"Not measured: {reason}."
    times: dict[tuple[str, str], list[float]] = {}
    with chromium.explorer() as address, chromium.chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(address)
        _wait(page)
        page.click("#level-expert")
        page.wait_for_timeout(1500)
        for preset in PRESETS:
            for slider, times_here in _measure(page, preset, random.Random(1)):
                times.setdefault((preset, slider), []).extend(times_here)
    quick = {key: found for key, found in times.items() if key[1] != "data.input_correlation"}
    rows = [
        [name, *_summary([x for (p, _), found in quick.items() if p == name for x in found])]
        for name in PRESETS
    ]
    rows.append(["all", *_summary([x for found in quick.values() for x in found])])
    slow = [x for key, found in times.items() if key not in quick for x in found]
    rows.append(["correlated inputs, which theory takes longer for", *_summary(slow)])
    heads = ["moves", "median", "95 %", "longest"]
    by_preset = markdown_table(["milliseconds until the number is painted", *heads], rows)
    sliders = sorted({slider for _, slider in times})
    rows = [
        [f"`{name}`", *_summary([x for (_, s), found in times.items() if s == name for x in found])]
        for name in sliders
    ]
    return by_preset + "\n\n" + markdown_table(["slider", *heads], rows)


def _measure(page: Any, preset: str, chance: random.Random) -> Any:
    page.select_option("#preset", preset)
    _wait(page)
    names = page.eval_on_selector_all(
        "#form input[type=range]",
        "all => all.map(e => [e.id, e.closest('.field').querySelector('input').name])",
    )
    for identity, name in names:
        found = []
        for _ in range(MOVES):
            low, high = SHARES.get(name.rpartition(".")[2], (0.1, 0.9))
            share = low + (high - low) * chance.random()
            page.wait_for_timeout(PAUSE)
            taken = page.evaluate(MOVE, [identity, share])
            if taken is not None:
                found.append(taken)
        yield name, found
        page.select_option("#preset", preset)
        _wait(page)


def _wait(page: Any) -> None:
    page.locator("#network_mse-A:not(.stale)").wait_for(timeout=30_000)
    page.wait_for_timeout(PAUSE)


def _summary(times: list[float]) -> list[str]:
    if not times:
        return ["0", "", "", ""]
    last = statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
    return [str(len(times)), f"{statistics.median(times):.0f}", f"{last:.0f}", f"{max(times):.0f}"]
