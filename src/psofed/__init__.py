"""Online federated learning that stays accurate when some clients lie.

>>> import psofed
>>> fleet = psofed.Scenario(num_clients=50, dimension=5, attack=psofed.attacks.Gaussian(num_byzantine=15))

Names are imported when they are first used, so that ``import psofed`` is instant.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from psofed._version import __version__

if TYPE_CHECKING:
    from psofed.common.errors import InvalidValueError as InvalidValueError
    from psofed.common.errors import NotCoveredError as NotCoveredError
    from psofed.common.errors import PsofedError as PsofedError
    from psofed.common.errors import UnknownFieldError as UnknownFieldError
    from psofed.data.own_data import OwnData as OwnData
    from psofed.data.own_data import from_arrays as from_arrays
    from psofed.data.own_data import read_data as read_data
    from psofed.fleet import Fleet as Fleet
    from psofed.fleet import draw_fleet as draw_fleet
    from psofed.parts import Aggregation as Aggregation
    from psofed.parts import Algorithm as Algorithm
    from psofed.parts import Attack as Attack
    from psofed.parts import Availability as Availability
    from psofed.parts import Channel as Channel
    from psofed.parts import Defence as Defence
    from psofed.parts import Delay as Delay
    from psofed.parts import Drift as Drift
    from psofed.parts import Function as Function
    from psofed.parts import InputStream as InputStream
    from psofed.parts import Learner as Learner
    from psofed.parts import Model as Model
    from psofed.parts import Pattern as Pattern
    from psofed.parts import PreAggregation as PreAggregation
    from psofed.parts import aggregations as aggregations
    from psofed.parts import algorithms as algorithms
    from psofed.parts import attacks as attacks
    from psofed.parts import availabilities as availabilities
    from psofed.parts import channels as channels
    from psofed.parts import defences as defences
    from psofed.parts import delays as delays
    from psofed.parts import drifts as drifts
    from psofed.parts import functions as functions
    from psofed.parts import learners as learners
    from psofed.parts import load_plugin as load_plugin
    from psofed.parts import models as models
    from psofed.parts import option as option
    from psofed.parts import patterns as patterns
    from psofed.parts import pre_aggregations as pre_aggregations
    from psofed.parts import streams as streams
    from psofed.results import DefenceRecord as DefenceRecord
    from psofed.results import Difference as Difference
    from psofed.results import SimulationResult as SimulationResult
    from psofed.results import difference as difference
    from psofed.scenario import Data as Data
    from psofed.scenario import Evasion as Evasion
    from psofed.scenario import Links as Links
    from psofed.scenario import Scenario as Scenario
    from psofed.scenario import Selection as Selection
    from psofed.scenario import Uniform as Uniform
    from psofed.scenario.file import read_scenario as read_scenario
    from psofed.simulation.monte_carlo import simulate as simulate
    from psofed.studies.advice import Advice as Advice
    from psofed.studies.advice import advise as advise
    from psofed.studies.comparison import Comparison as Comparison
    from psofed.studies.comparison import compare as compare
    from psofed.studies.sweeps import SweepResult as SweepResult
    from psofed.studies.sweeps import load_result as load_result
    from psofed.studies.sweeps import sweep as sweep
    from psofed.theory.limits import attack_limits as attack_limits
    from psofed.theory.metrics import Terms as Terms
    from psofed.theory.prediction import LearningCurve as LearningCurve
    from psofed.theory.prediction import Prediction as Prediction
    from psofed.theory.prediction import predict as predict
    from psofed.theory.recovery import predict_recovery as predict_recovery
    from psofed.theory.stepsize import optimal_stepsize as optimal_stepsize
    from psofed.theory.stepsize_curve import StepsizeCurve as StepsizeCurve
    from psofed.theory.stepsize_curve import predict_stepsizes as predict_stepsizes
    from psofed.theory.tuning import tune as tune

# Where each name is at home.
_HOME = {
    "Advice": "studies.advice",
    "Aggregation": "parts",
    "Algorithm": "parts",
    "Attack": "parts",
    "Availability": "parts",
    "Channel": "parts",
    "Comparison": "studies.comparison",
    "Data": "scenario",
    "Defence": "parts",
    "Delay": "parts",
    "DefenceRecord": "results",
    "Difference": "results",
    "Drift": "parts",
    "Evasion": "scenario",
    "Fleet": "fleet",
    "Function": "parts",
    "InputStream": "parts",
    "Learner": "parts",
    "InvalidValueError": "common.errors",
    "LearningCurve": "theory.prediction",
    "Links": "scenario",
    "Model": "parts",
    "NotCoveredError": "common.errors",
    "OwnData": "data.own_data",
    "Pattern": "parts",
    "PreAggregation": "parts",
    "Prediction": "theory.prediction",
    "PsofedError": "common.errors",
    "Scenario": "scenario",
    "Selection": "scenario",
    "SimulationResult": "results",
    "SweepResult": "studies.sweeps",
    "Terms": "theory.metrics",
    "StepsizeCurve": "theory.stepsize_curve",
    "Uniform": "scenario",
    "UnknownFieldError": "common.errors",
    "advise": "studies.advice",
    "attack_limits": "theory.limits",
    "compare": "studies.comparison",
    "difference": "results",
    "draw_fleet": "fleet",
    "from_arrays": "data.own_data",
    "load_plugin": "parts",
    "load_result": "studies.sweeps",
    "optimal_stepsize": "theory.stepsize",
    "option": "parts",
    "predict": "theory.prediction",
    "predict_recovery": "theory.recovery",
    "predict_stepsizes": "theory.stepsize_curve",
    "read_data": "data.own_data",
    "read_scenario": "scenario.file",
    "simulate": "simulation.monte_carlo",
    "sweep": "studies.sweeps",
    "tune": "theory.tuning",
}

# The built-in parts: psofed.attacks is psofed.parts.attacks, and so on.
_FAMILIES = (
    "aggregations", "algorithms", "attacks", "availabilities", "channels", "defences", "delays", "drifts", "functions",
    "learners", "models", "patterns", "pre_aggregations", "streams",
)  # fmt: skip

__all__ = ["__version__", *_HOME, *_FAMILIES]


for _family in _FAMILIES:
    # Under both names, so that `from psofed.attacks import Gaussian` works; the parts themselves load when used.
    sys.modules[f"psofed.{_family}"] = globals()[_family] = import_module(f"psofed.parts.{_family}")


if not TYPE_CHECKING:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            # With name and obj, Python says what may have been meant.
            raise AttributeError(
                f"module 'psofed' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        return getattr(import_module(f"psofed.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
