"""Online federated learning that stays accurate when some clients are Byzantine.

>>> import psofed
>>> fleet = psofed.Scenario(num_clients=50, dimension=5, attack=psofed.attacks.Gaussian(num_byzantine=15))

The public names are listed in ``__init__.pyi``. They are imported when they are first used, so that ``import psofed``
is instant.
"""

import sys
from functools import partial
from importlib import import_module

from psofed._version import __version__ as __version__
from psofed.common.lazy import lazy_names
from psofed.parts.registry import FAMILIES, class_in, class_names

__getattr__, __dir__, __all__ = lazy_names(
    __file__,
    moved={
        "fit_scenario": "psofed.Scenario.from_data",
        "attack_limits": "psofed.predict(scenario).is_stable",
        "predict_stepsizes": "psofed.predict(scenario).at(stepsize)",
        "StepsizeCurve": "psofed.Prediction",
    },
)

for _family, _folder in FAMILIES.items():
    # Under both names, so that `from psofed.attacks import Gaussian` works; the parts themselves load when used.
    _package = sys.modules[f"psofed.{_folder}"] = globals()[_folder] = import_module(f"psofed.parts.{_folder}")
    vars(_package).update(__getattr__=partial(class_in, _family), __dir__=partial(class_names, _family))
