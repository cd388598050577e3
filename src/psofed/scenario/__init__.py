"""The scenario that is simulated and predicted, and its tables, in Python and as TOML."""

from psofed.common.per_client import Uniform
from psofed.scenario.scenario import UPLINKS, Scenario
from psofed.scenario.tables import Data, Links, Selection, Variance

__all__ = ["UPLINKS", "Data", "Links", "Scenario", "Selection", "Uniform", "Variance"]
