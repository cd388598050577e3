"""Online federated learning that stays accurate when some clients lie.

>>> import psofed
>>> scenario = psofed.Scenario(num_clients=50, dimension=5, attack=psofed.Attack(num_byzantine=15))

Names are imported when they are first used, so that ``import psofed`` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from psofed._version import __version__

if TYPE_CHECKING:
    from psofed.data import Fleet, draw_fleet
    from psofed.drift import Drift
    from psofed.errors import InvalidValueError, NotCoveredError, PsofedError, UnknownFieldError
    from psofed.model import Model
    from psofed.own_data import OwnData, read_data
    from psofed.results import SimulationResult, load_result
    from psofed.scenario import Attack, Data, Scenario, Selection, Uniform
    from psofed.scenario_file import read_scenario
    from psofed.simulate.monte_carlo import simulate
    from psofed.theory.prediction import LearningCurve, Prediction, Terms, predict
    from psofed.theory.stepsize import optimal_stepsize

_HOME = {
    "Attack": "scenario",
    "Data": "scenario",
    "Drift": "drift",
    "Fleet": "data",
    "InvalidValueError": "errors",
    "LearningCurve": "theory.prediction",
    "Model": "model",
    "NotCoveredError": "errors",
    "OwnData": "own_data",
    "Prediction": "theory.prediction",
    "PsofedError": "errors",
    "Scenario": "scenario",
    "Selection": "scenario",
    "SimulationResult": "results",
    "Terms": "theory.prediction",
    "Uniform": "scenario",
    "UnknownFieldError": "errors",
    "draw_fleet": "data",
    "load_result": "results",
    "optimal_stepsize": "theory.stepsize",
    "predict": "theory.prediction",
    "read_data": "own_data",
    "read_scenario": "scenario_file",
    "simulate": "simulate",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'psofed' has no attribute {name!r}")
    home = import_module(f"psofed.{_HOME[name]}")
    return home if _HOME[name] == name else getattr(home, name)  # simulate is a package that can be called


def __dir__() -> list[str]:
    return sorted(__all__)
