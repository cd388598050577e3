"""PSO-Fed as a Flower app, on public names of Flower only; needs ``pip install -e '.[flower]'``."""

from importlib.util import find_spec

from psofed.common.errors import missing_package

if find_spec("flwr") is None:
    raise missing_package("this", "Flower", "flower")
