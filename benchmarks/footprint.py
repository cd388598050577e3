"""What a start costs and what large scenarios take, each in a process of its own."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._timing import markdown_table
from psofed.scenario.file import EXAMPLE

CLI = "from psofed.cli import main; main()"
LARGE = """
import resource, time, psofed
from psofed import Scenario
scenario = Scenario({sizes})
start = time.perf_counter()
psofed.simulate(scenario, trials={trials}, threads=1)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def run() -> str:
    """Return a table of wall time and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(EXAMPLE)
        starts = {
            "import psofed": ["-c", "import psofed"],
            "psofed --help": ["-c", CLI, "--help"],
            "psofed simulate, 16 trials of the example, warm": [
                "-c",
                CLI,
                "simulate",
                str(path),
                "--trials",
                "16",
            ],
        }
        rows = [[name, f"{_seconds(command):.2f} s", ""] for name, command in starts.items()]
    large = {
        "K = 50, D = 5, 10⁴ iterations, 16 trials": ("num_clients=50, dimension=5, iterations=10_000", 16),
        "K = 50, D = 5, 10⁵ iterations, 16 trials": ("num_clients=50, dimension=5, iterations=100_000", 16),
        "K = 100,000, D = 5, 100 iterations, 16 trials": ("num_clients=100_000, dimension=5, iterations=100", 16),
        "K = 50, D = 10,000, M = 100, 100 iterations, 16 trials": (
            "num_clients=50, dimension=10_000, num_shared=100, iterations=100, stepsize=1e-4", 16,
        ),
    }  # fmt: skip
    for name, (sizes, trials) in large.items():
        done = subprocess.run(
            [sys.executable, "-c", LARGE.format(sizes=sizes, trials=trials)],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds, megabytes = map(float, done.stdout.split())
        rows.append([name, f"{seconds:.2f} s", f"{megabytes:.0f} MB"])
    return markdown_table(["", "wall time", "peak memory of the process"], rows)


def _seconds(command: list[str]) -> float:
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        best = min(best, time.perf_counter() - start)
    return best
