"""Online federated learning that stays accurate when some clients are Byzantine.

>>> import psofed
>>> fleet = psofed.Scenario(num_clients=50, dimension=5, attack=psofed.attacks.Gaussian(num_byzantine=15))

The public names are listed in ``__init__.pyi``. They are imported when they are first used, so that ``import psofed``
is instant.
"""

import sys
from importlib import import_module

from psofed._version import __version__ as __version__
from psofed.common.lazy import lazy_names
from psofed.parts.registry import FAMILIES

__getattr__, __dir__, __all__ = lazy_names(__file__, moved={"fit_scenario": "psofed.Scenario.from_data"})

for _family in FAMILIES.values():
    # Under both names, so that `from psofed.attacks import Gaussian` works; the parts themselves load when used.
    sys.modules[f"psofed.{_family}"] = globals()[_family] = import_module(f"psofed.parts.{_family}")
