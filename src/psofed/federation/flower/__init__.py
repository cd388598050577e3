"""PSO-Fed as a Flower app, on public names of Flower only; needs ``pip install 'psofed[flower]'``."""

from importlib.util import find_spec

from psofed.common.errors import PsofedError

if find_spec("flwr") is None:
    raise PsofedError("this needs Flower; install it with: pip install 'psofed[flower]'")
