"""The points printed in the paper, as numbers."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published_table() -> dict[str, Any]:
    """Return what stands in ``published.json``: the curves of each figure in dB, and where they come from."""
    table: dict[str, Any] = json.loads(files("psofed.paper").joinpath("published.json").read_text("utf-8"))
    return table
