"""Payoff of the demo: its run compared with the same streams without the defence and without partial sharing."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.files import read_json
from psofed.common.numbers import to_decibels
from psofed.federation.deploy.app import client_app, run_server
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.superlink import Home
from psofed.federation.flower import number_of_key, public_key_of
from psofed.federation.testing import InProcessGrid
from psofed.render import Column, Kind, Table

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class DemoPayoff:
    """Server MSD by round of a demo's run, and of the same streams without its protection.

    Attributes
    ----------
    node : str
        The Byzantine node.
    found : int or None
        The round in which the defence excluded it.
    curves : mapping
        Server MSD by round, by how it was run; the run itself comes last.
    """

    node: str
    found: int | None
    curves: Mapping[str, Sequence[float]]

    @property
    def last_rounds(self) -> int:
        """The last quarter of the rounds, over which the error is averaged."""
        return max(1, len(next(iter(self.curves.values()))) // 4)

    @property
    def ends(self) -> list[float]:
        """The mean server MSD at the end of each curve."""
        return [float(np.mean(curve[-self.last_rounds :])) for curve in self.curves.values()]

    @property
    def headline(self) -> str:
        """The outcome in a sentence."""
        ends = self.ends
        what = "was not found" if self.found is None else f"was found in round {self.found}"
        return f"The Byzantine {self.node} {what}; error {ends[-1]:.2g} instead of {ends[0]:.2g}."

    def table(self) -> Table:
        """Return the curves as small charts on the same scale."""
        levels = {name: to_decibels(np.array(curve, dtype=np.float64)) for name, curve in self.curves.items()}
        low, high = min(map(np.min, levels.values())), max(map(np.max, levels.values()))
        end = Column(f"mean of the last {self.last_rounds}", Kind.LEVEL, digits=1)
        return Table(
            "Error: server MSD (lower is better)",
            (Column("shared"), Column("by round"), end),
            tuple(
                (name, bars(levels[name], low, high), mean)
                for name, mean in zip(self.curves, self.ends, strict=True)
            ),
        )


def bars(level: Any, low: float, high: float, width: int = 40) -> str:
    """Return values as a line of bars, the latest `width` of them.

    Examples
    --------
    >>> bars([0.0, 5.0, 10.0], 0.0, 10.0)
    '▁▄█'
    """
    reach = max(high - low, 1e-12)
    return "".join(_BARS[int((len(_BARS) - 1) * (value - low) / reach)] for value in level[-width:])


def pay_off(result: Mapping[str, Any], settings: RunSettings, home: Home) -> DemoPayoff:
    """Replay the streams of a demo's run without its protection; keys and seed give the same masks and participants."""
    scenario = settings.scenario.replace(defence=None)
    numbers = [
        number_of_key(public_key_of(home.credentials.folder / f"node-{k}.pub"))
        for k in range(scenario.num_clients)
    ]
    shared = f"{scenario.num_shared} of {scenario.dimension} parameters"
    curves = {
        "all parameters, no defence": _replay(
            settings.replace(scenario=scenario.replace(num_shared=scenario.dimension)), numbers
        ),
        f"{shared}, no defence": _replay(settings.replace(scenario=scenario), numbers),
        f"{shared}, defence": result["learning_curve"]["server_msd"],
    }
    suspect = result.get("suspects", {}).get("node-0")
    return DemoPayoff("node-0", None if suspect is None else int(suspect["first_round"]), curves)


def _replay(settings: RunSettings, numbers: Sequence[int]) -> list[float]:
    """Return the server MSD by round of a run within this process."""
    nodes = {
        number: {"partition": k, **({"byzantine": True} if k < settings.scenario.num_byzantine else {})}
        for k, number in enumerate(numbers)
    }
    grid = InProcessGrid(dict.fromkeys(nodes, client_app), node_config=nodes)
    for context in grid.contexts.values():
        context.run_config = settings.to_config()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "replay")
        run_server(grid, settings, home)
        return list(read_json(home.result)["learning_curve"]["server_msd"])
