"""Helpers shared by the federation's commands."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings

if TYPE_CHECKING:
    from psofed.federation.deploy.superlink import Home

_LOGGER = "psofed.federation"
DEFAULT_HOME = Path("psofed-federation")


class HomeFolder(Settings):
    """Where the files of a federation are."""

    home: Path = option(default=DEFAULT_HOME, metavar="DIR", text="folder with all files of this federation")

    def open(self, *, made: bool = True) -> "Home":
        """Return the files, which a command may or may not expect to be `made` already."""
        from psofed.federation.deploy.superlink import Home

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
def ready() -> Iterator[None]:
    """Check that Flower is there, and let SIGTERM end a command as Ctrl-C does, so that it cleans up."""
    from psofed.federation import require_flower

    require_flower()
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
