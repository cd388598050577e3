"""Which versions of Flower the long-lived node was tested with."""

from functools import cache
from importlib.metadata import version

TESTED_MINORS = ("1.40", "1.41", "1.42")
"""Flower's minor versions that the long-lived node was tested with."""


def untested_version() -> str | None:
    """Return the installed Flower's version if the long-lived node was not tested with it, else None."""
    installed = _installed()
    return None if ".".join(installed.split(".")[:2]) in TESTED_MINORS else installed


@cache
def _installed() -> str:
    return version("flwr")  # reads files, and is asked in every round
