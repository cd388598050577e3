"""Monte Carlo simulation: ``psofed.simulate(...)``, and a slow, literal reference it is tested against.

``psofed.simulate`` is at once this package and the function one calls: Python binds a package's name in its
parent when any part of it is imported, which would hide a function of the same name. So the package itself
can be called, and calling it is :func:`psofed.simulate.monte_carlo.simulate`. Numba and the kernels are
imported at the first call.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from psofed.simulate.monte_carlo import simulate

        return simulate(*args, **options)

    @property
    def __wrapped__(self) -> Any:
        # Lets inspect.signature and help() show the function's own.
        from psofed.simulate.monte_carlo import simulate

        return simulate


sys.modules[__name__].__class__ = _CallablePackage
