"""What a start costs and what large scenarios take, each in a process of its own."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._timing import markdown_table
from psofed.scenario.file import EXAMPLE

CLI = "from psofed.cli import main; main()"
LARGE = """
import resource, time, psofed
from psofed import Scenario
scenario = Scenario({sizes})
start = time.process_time()
psofed.simulate(scenario, trials={trials}, threads=1)
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def run() -> str:
    """Return a table of CPU time and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(EXAMPLE)
        simulate = ["-c", CLI, "simulate", str(path), "--trials", "16"]
        starts = {
            "import psofed": ["-c", "import psofed"],
            "psofed --help": ["-c", CLI, "--help"],
            "psofed simulate, 16 trials of the example, warm": simulate,
        }
        # Bytecode is kept, as it is of an installed package.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        kept["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        rows = [
            [name, f"{min(_seconds(command, kept) for _ in range(5)):.2f} s", ""] for name, command in starts.items()
        ]
        # The first of two, for the bytecode of Numba's compiler, which an installed package has as well.
        caches = (Path(folder) / "cache of the first", Path(folder) / "cache of the second")
        *_, first = (_seconds(simulate, {**kept, "XDG_CACHE_HOME": str(cache)}) for cache in caches)
        rows.append(["the same, for the first time on a machine", f"{first:.2f} s", ""])
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
            [sys.executable, "-c", LARGE.format(sizes=sizes, trials=trials)], capture_output=True, text=True, check=True
        )
        seconds, megabytes = map(float, done.stdout.split())
        rows.append([name, f"{seconds:.2f} s", f"{megabytes:.0f} MB"])
    return markdown_table(["", "CPU time", "peak memory of the process"], rows)


def _seconds(command: list[str], environment: dict[str, str]) -> float:
    """Return the CPU time that a process takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], capture_output=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
