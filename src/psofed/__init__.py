"""Online federated learning that stays accurate when some clients lie.

>>> import psofed
>>> scenario = psofed.Scenario(num_clients=50, dimension=5, attack=psofed.Attack(num_byzantine=15))

Names are imported when they are first used, so that ``import psofed`` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from psofed._version import __version__

if TYPE_CHECKING:
    from psofed.common.errors import InvalidValueError, NotCoveredError, PsofedError, UnknownFieldError
    from psofed.fleet import Fleet, draw_fleet
    from psofed.fleet.own_data import OwnData, read_data
    from psofed.results import SimulationResult, load_result
    from psofed.scenario import Attack, Data, Scenario, Selection, Uniform
    from psofed.scenario.drift import Drift
    from psofed.scenario.file import read_scenario
    from psofed.scenario.model import Model
    from psofed.simulation.monte_carlo import simulate
    from psofed.theory.limits import attack_limits
    from psofed.theory.prediction import (
        LearningCurve,
        Prediction,
        StepsizeCurve,
        Terms,
        predict,
        predict_stepsizes,
    )
    from psofed.theory.stepsize import optimal_stepsize

_HOME = {
    "Attack": "scenario",
    "Data": "scenario",
    "Drift": "scenario.drift",
    "Fleet": "fleet",
    "InvalidValueError": "common.errors",
    "LearningCurve": "theory.prediction",
    "Model": "scenario.model",
    "NotCoveredError": "common.errors",
    "OwnData": "fleet.own_data",
    "Prediction": "theory.prediction",
    "PsofedError": "common.errors",
    "Scenario": "scenario",
    "Selection": "scenario",
    "SimulationResult": "results",
    "Terms": "theory.prediction",
    "StepsizeCurve": "theory.prediction",
    "Uniform": "scenario",
    "UnknownFieldError": "common.errors",
    "attack_limits": "theory.limits",
    "draw_fleet": "fleet",
    "load_result": "results",
    "optimal_stepsize": "theory.stepsize",
    "predict": "theory.prediction",
    "predict_stepsizes": "theory.prediction",
    "read_data": "fleet.own_data",
    "read_scenario": "scenario.file",
    "simulate": "simulation.monte_carlo",
    "tune": "theory.tuning",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'psofed' has no attribute {name!r}")
    return getattr(import_module(f"psofed.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
