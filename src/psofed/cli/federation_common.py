"""Helpers shared by the federation's commands."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from psofed.federation.deploy.superlink import Home

HomeFolder = Annotated[
    Path, typer.Option("--home", metavar="DIR", help="Folder of all files of this federation.")
]
DEFAULT_HOME = Path("psofed-federation")


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


def open_home(folder: Path) -> "Home":
    """Return the files of the federation in `folder`."""
    from psofed.federation.deploy.superlink import Home

    return Home(folder)


def say(text: str) -> None:
    """Tell a person something, beside the command's own output."""
    print(text, file=sys.stderr, flush=True)
