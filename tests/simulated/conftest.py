"""Setup of the simulator's tests: the path of their modules, and Flower imported once."""

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if find_spec("flwr") is None:
    collect_ignore_glob = ["test_*.py"]  # the extra [federation] is not installed
else:
    # Typer, which Flower imports, warns about Click while it is being imported; that is not ours to mend.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import flwr.app
        import flwr.clientapp
        import flwr.serverapp.strategy  # noqa: F401
