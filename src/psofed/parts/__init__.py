"""Parts of a scenario: what they promise, where they are found, and the built-in ones, a folder for each family.

A part is a frozen value that every package takes: simulation, theory, sweeps, the federation, TOML, the command line.
Own ones are classes that derive from one of the bases here; see ``docs/write_a_part.md``.
"""

from psofed.common.options import option
from psofed.parts.base import (
    Aggregation,
    Algorithm,
    Attack,
    Defence,
    Drift,
    Function,
    InputStream,
    Learner,
    Model,
    Pattern,
    PreAggregation,
)
from psofed.parts.metric import Metric, TrialState
from psofed.parts.network import Availability, Channel, Delay
from psofed.parts.registry import load_plugin

__all__ = [
    "Aggregation",
    "Algorithm",
    "Attack",
    "Availability",
    "Channel",
    "Defence",
    "Delay",
    "Drift",
    "Function",
    "InputStream",
    "Learner",
    "Metric",
    "Model",
    "Pattern",
    "PreAggregation",
    "TrialState",
    "load_plugin",
    "option",
]
