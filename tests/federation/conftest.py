"""Fixtures of the federation's tests: small apps on a Grid within this process."""

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # where the helpers beside the tests are found

if find_spec("flwr") is None:
    collect_ignore_glob = ["test_federation_*.py", "network/*"]  # the extra [federation] is not installed
else:
    # Typer, which Flower imports, warns about Click while it is being imported; that is not ours to mend.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import flwr.app
        import flwr.clientapp
        import flwr.serverapp.strategy  # noqa: F401


@pytest.fixture
def make_app():
    """Return a maker of ClientApps that add a constant to every weight, through `partial_sharing`."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    from psofed.federation import partial_sharing

    def make(step: float = 1.0, mods=(), fail_in=(), **sharing) -> ClientApp:
        app = ClientApp()

        @app.train(mods=[*mods, partial_sharing(**sharing)])
        def train(message, context):
            config = message.content["config"]
            context.state["touched"] = MetricRecord({"round": config["server-round"]})
            if config["server-round"] in fail_in:
                raise RuntimeError("training failed")
            arrays = message.content["arrays"]
            trained = [
                np.asarray(array + np.asarray(step, array.dtype)) for array in arrays.to_numpy_ndarrays()
            ]
            named = ArrayRecord(dict(zip(arrays, ArrayRecord(trained).values(), strict=True)))
            return Message(
                RecordDict({"arrays": named, "metrics": MetricRecord({"num-examples": 2})}), reply_to=message
            )

        return app

    return make
