"""Helpers shared by the federation's commands."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from psofed.common.errors import PsofedError, missing_package
from psofed.common.options import option
from psofed.common.settings import Settings

if TYPE_CHECKING:
    from psofed.federation.deploy.home import Home

_LOGGER = "psofed.federation"
_PACKAGES = ("paho.mqtt", "cryptography")


class HomeFolder(Settings):
    """Where the files of a federation are."""

    home: Path = option(
        default=Path("psofed-federation"), metavar="DIR", text="folder with all files of this federation"
    )

    def open(self, *, made: bool = True) -> "Home":
        """Return the files, which a command may or may not expect to be `made` already."""
        from psofed.federation.deploy.home import Home

        if made and not self.home.is_dir():
            raise PsofedError(f"there is no federation in {self.home}; name its folder with --home")
        return Home(self.home)


class LogOptions(Settings):
    """How a command that runs for long writes its log."""

    log_json: bool = option(default=False, text="write log lines as JSON")

    def start(self) -> None:
        """Write log lines from now on."""
        from psofed.common.logs import write_log_lines

        write_log_lines(_LOGGER, as_json=self.log_json)


@contextmanager
def ready(*, network: bool = True) -> Iterator[None]:
    """Check that what a `network` needs is installed, and let SIGTERM end a command as Ctrl-C does."""
    from importlib.util import find_spec

    for package in _PACKAGES if network else ():
        if find_spec(package.partition(".")[0]) is None:
            raise missing_package("a federation", package, "federation")
    os.umask(0o077)  # whatever is written is for its owner only

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def log(text: str) -> None:
    """Write a line to the log of a command that runs for long."""
    logging.getLogger(_LOGGER).info("%s", text)


def say(text: str) -> None:
    """Tell a person something, beside the command's own output."""
    print(text, file=sys.stderr, flush=True)
