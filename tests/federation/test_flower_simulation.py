"""PSO-Fed in Flower's own simulation (``pip install 'flwr[simulation]'``) has the bits of the in-process Grid."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import simulated_flower

from psofed.federation.flower.in_process import InProcessGrid

pytestmark = [pytest.mark.federation, pytest.mark.slow]

OFFLINE = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def test_flowers_simulation_gives_the_bits_of_the_in_process_grid(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation is not installed (flwr[simulation])")
    # Workers import the app by its name, from the folder beside this file.
    environment = {
        **os.environ,
        **OFFLINE,
        "FLWR_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    command = [sys.executable, "-W", "ignore", str(Path(simulated_flower.__file__))]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    simulated = json.loads(line.removeprefix("RESULT "))
    grid = InProcessGrid(dict.fromkeys(simulated["nodes"], simulated_flower.client_app))
    assert simulated_flower.run(grid) == simulated
