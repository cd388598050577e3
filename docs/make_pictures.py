"""Take the pictures of the playground, the explorer and the report for the README and these pages, in a real Chromium.

Run as `python docs/make_pictures.py [playground] [explorer] [report]`; it needs Chromium and what `make install`
installs. The playground's is taken of site/, as `make docs` builds it, and the report's of out/report.html, as
`psofed reproduce all` writes it.
"""

import io
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PATIENCE = 300_000  # milliseconds: the machine may have other things to do

sys.path.insert(0, str(ROOT / "tests" / "browser"))


def main(names: list[str]) -> None:
    """Take the pictures of these names."""
    import chromium

    if reason := chromium.why_none():
        raise SystemExit(f"no pictures: {reason}")
    with chromium.chromium() as browser:
        if "playground" in names:
            playground(browser, ROOT / "site" / "playground.html")
        if "explorer" in names:
            with chromium.explorer() as address:
                explorer(browser, address)
        if "report" in names:
            report(browser, ROOT / "out" / "report.html")


def playground(browser: Any, path: Path) -> None:
    """Take the playground, without the site around it."""
    page = new_page(browser, viewport={"width": 1400, "height": 1000})
    page.goto(path.as_uri())
    page.locator("#pg-value").wait_for()
    box = page.locator("#pg-root").bounding_box()
    clip = {"x": box["x"] - 20, "y": box["y"] - 10, "width": box["width"] + 40, "height": box["height"] + 20}
    save(page, "playground", full_page=True, clip=clip)
    page.close()


def explorer(browser: Any, address: str) -> None:
    """Take the explorer: simulated, A beside B, on a phone by night."""
    page = new_page(browser, viewport={"width": 1400, "height": 900})
    page.goto(address)
    page.get_by_text("Band: ").wait_for()
    page.get_by_role("button", name="Simulate").click()
    page.locator("th", has_text="simulated").wait_for()
    page.get_by_role("button", name="Simulate", exact=True).wait_for()
    save(page, "explorer_light")
    page.get_by_role("button", name="Compare with B").click()
    page.locator("th", has_text="B − A").wait_for()
    page.locator(".field-num-shared input[type=text]").fill("5")
    page.keyboard.press("Enter")
    page.locator("p.sentence", has_text="Sharing all 5 parameters").wait_for()
    page.locator("p.note", has_text="Computing").last.wait_for(state="hidden")
    save(page, "explorer_compare")
    page.close()

    page = new_page(browser, viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.goto(address)
    page.get_by_text("Band: ").wait_for()
    save(page, "explorer_phone")
    page.close()


def report(browser: Any, path: Path) -> None:
    """Take the top of the report."""
    page = new_page(browser, viewport={"width": 1400, "height": 980})
    page.goto(path.as_uri())
    page.locator(".bk-Canvas, canvas").first.wait_for()
    save(page, "report")


def new_page(browser: Any, **options: Any) -> Any:
    """Open a window that waits for as long as it takes."""
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE)
    return page


def save(page: Any, name: str, **options: Any) -> None:
    """Keep what the window shows, in 128 colours: a third of the bytes, and nobody sees it."""
    from PIL import Image

    page.wait_for_timeout(1500)  # for the last drawing
    picture = Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
    print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:] or ["playground", "explorer", "report"])
