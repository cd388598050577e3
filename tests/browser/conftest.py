"""A real browser for the tests that need one: Debian's Chromium, driven by Playwright.

Without a browser these tests are skipped with a reason. Where PSOFED_BROWSER=required is set, as `.ci/run` does,
a missing browser is a failure. Screenshots are kept under out/screenshots, or where PSOFED_SCREENSHOTS says.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sys.path.insert(0, str(Path(__file__).parent))  # where the helper beside the tests is found
import chromium

ONE_WORKER = True  # one browser at a time


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """One Chromium for a file of tests; its driver runs an event loop, which tests elsewhere must not find running."""
    if reason := chromium.why_none():
        if os.environ.get("PSOFED_BROWSER") == "required":
            pytest.fail(f"PSOFED_BROWSER=required, but {reason}")
        pytest.skip(reason)
    with chromium.chromium() as browser:
        yield browser


class Windows:
    """Windows of a browser, each with its own page, and what has gone wrong in them.

    A message of level error in the console, an exception in the page's scripts and a request to another host than the
    page's own are troubles.
    """

    def __init__(self, browser: "Browser") -> None:
        self.browser = browser
        self.contexts: list[Any] = []
        self.troubles: list[str] = []

    def open(
        self, url: str, *, width: int = 1400, height: int = 900, scheme: str = "light", touch: bool = False
    ) -> "Page":
        """Open an address in a window of its own."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            has_touch=touch,
            is_mobile=touch,
            accept_downloads=True,
        )
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.contexts.append(context)
        page = context.new_page()
        own_host, troubles = url.split("/")[2], self.troubles

        def check_request(request: Any) -> None:
            if request.url.startswith(("http", "ws")) and request.url.split("/")[2] != own_host:
                troubles.append(f"asks another host: {request.url}")

        page.on("console", lambda message: message.type == "error" and troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"exception in the page: {error}"))
        page.on("request", check_request)
        page.goto(url, timeout=120_000)  # machines that run many tests at once are slow
        return page

    def close(self) -> None:
        """Close all of them."""
        for context in self.contexts:
            context.close()


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[Callable[..., "Page"]]:
    """Open an address in a window of its own, with :meth:`Windows.open`; at the end nothing may have gone wrong."""
    windows = Windows(browser)
    yield windows.open
    windows.close()
    assert not windows.troubles, windows.troubles


@pytest.fixture(scope="module")
def shared_windows(browser: "Browser") -> Iterator[Windows]:
    """Windows that stay open for a file of tests, whose tests see to it that nothing has gone wrong."""
    windows = Windows(browser)
    yield windows
    windows.close()


@pytest.fixture
def screenshot(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Keep a picture of a page: `screenshot(page, "name", full_page=True)` returns its path."""
    folder = Path(os.environ.get("PSOFED_SCREENSHOTS", request.config.rootpath / "out" / "screenshots"))

    def keep(page: "Page", name: str, *, full_page: bool = True) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        page.screenshot(path=path, full_page=full_page)
        return path

    return keep


@pytest.fixture
def sideways() -> Callable[["Page"], list[str]]:
    """What sticks out to the right of the window; an empty list means that nothing scrolls sideways."""

    def find(page: "Page") -> list[str]:
        return list(
            page.evaluate(
                """() => {
                    const width = document.documentElement.clientWidth;
                    if (document.documentElement.scrollWidth <= width) return [];
                    return [...document.querySelectorAll('body *')]
                        .filter(e => e.getBoundingClientRect().right > width + 1)
                        .map(e => `${e.tagName}.${e.className}#${e.id}`)
                        .slice(0, 20);
                }"""
            )
        )

    return find
