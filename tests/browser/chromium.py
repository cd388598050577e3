"""Debian's Chromium and an explorer to open in it; for the tests, the benchmark and the pictures of the docs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# As root there is no sandbox; the other flags keep Chromium from looking for Google's hosts on a closed network.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def why_none() -> str:
    """Say why there is no browser to drive; nothing if there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed (it comes with `make install`)"
    return "" if _path() else f"no browser on this machine: none of {', '.join(NAMES)} is on the PATH"


@contextmanager
def chromium() -> Iterator[Any]:
    """Run a Chromium, as Playwright's Browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_path(), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def explorer(*arguments: str) -> Iterator[str]:
    """Run ``psofed explore`` as a user does, and end it as a user does; yield its address."""
    command = [sys.executable, "-c", "from psofed.cli import main; main()", "explore", "--no-browser", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield line.rpartition(" ")[2].strip()
            process.send_signal(2)
            rest = process.stdout.read()
            assert process.wait(30) == 0
            assert rest.endswith("psofed explorer: stopped\n")
        finally:
            process.kill()


def _path() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)
