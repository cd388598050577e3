"""psofed without the federation needs nothing that only POSIX systems have."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.common

PROGRAM = """
import sys
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None  # importing it is an ImportError

import importlib, pkgutil
import psofed
for module in pkgutil.walk_packages(psofed.__path__, "psofed."):
    if not module.name.startswith(("psofed.federation", "psofed.river", "psofed.testing")):
        importlib.import_module(module.name)

fleet = psofed.Scenario(num_clients=4, dimension=2, iterations=20)
assert psofed.simulate(fleet, trials=2).estimates()["network_mse"].mean > 0
points = psofed.sweep(fleet, {"num_shared": [1, 2]}, trials=2, store="cells")
points.save("results")
assert len(psofed.load_result("results/sweep.nc").cells) == 2
sys.argv = ["psofed", "simulate", "--help"]
psofed.cli.main()
"""


def test_psofed_imports_simulates_and_sweeps_without_posix_modules(tmp_path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "psofed simulate" in done.stdout
