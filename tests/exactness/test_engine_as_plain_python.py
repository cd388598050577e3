"""The engine run as plain Python does what it does compiled, and what is written literally, within its memory."""

import sys
from pathlib import Path

import numpy as np
import pytest

from psofed.engine.lanes import WIDTH
from psofed.reference.literal import run_trial

sys.path.insert(0, str(Path(__file__).parent))
from every_kind import KINDS, PLAN, fleet_of, scenario_of, start
from plain_engine import run_as_python

METRICS = ("network_mse", "server_msd", "test_mse")
# There is no literal form of these.
COMPILED = ("a table", "root data")


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_as_plain_python_stays_within_its_memory_and_does_the_same(kind: str) -> None:
    count = 8 if kind == "a table" else 3
    found = np.empty((count, 3, WIDTH))
    fleet_of(kind)  # drawn while the engine is compiled
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        run_as_python(patch)
        start(kind, range(WIDTH)).advance(0, found)
    if kind in COMPILED:
        compiled = np.empty_like(found)
        start(kind, range(WIDTH)).advance(0, compiled)
        expected = compiled[:, :, 11].T
    else:
        literal = run_trial(scenario_of(kind).replace(iterations=count), 3, 11, PLAN)
        expected = np.array([getattr(literal, metric) for metric in METRICS])
    assert np.allclose(found[:, :, 11].T, expected, rtol=1e-9)
