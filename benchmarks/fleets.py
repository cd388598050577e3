"""One trial of a large fleet against sixteen of a smaller one, and the prediction of its error; each in a process."""

import subprocess
import sys

from benchmarks._timing import markdown_table

# CPU time, since two threads share the clients of one trial.
SIMULATE = """
import resource, time, psofed
from psofed import Scenario
scenario = Scenario(num_clients={clients}, dimension=5, iterations={iterations})
psofed.simulate(scenario.replace(iterations=max(20_000_000 // {clients}, 1)), trials={trials}, threads=1)
start = time.process_time()
psofed.simulate(scenario, trials={trials}, threads={threads})
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
PREDICT = """
import resource, time, psofed
from psofed import Scenario
psofed.predict(Scenario(num_clients=10, dimension=5))
start = time.process_time()
psofed.predict(Scenario(num_clients={clients}, dimension=5))
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

# Clients, iterations, trials and threads.
FLEETS = {
    "16 trials, K = 62,500, 100 iterations, 1 thread": (62_500, 100, 16, 1),
    "1 trial, K = 1,000,000, 100 iterations, 1 thread": (1_000_000, 100, 1, 1),
    "1 trial, K = 10,000,000, 100 iterations, 2 threads": (10_000_000, 100, 1, 2),
}


def run() -> str:
    """Return a table of CPU time and peak memory; the first row is the yardstick."""
    rows, yardstick = [], 0.0
    for name, (clients, iterations, trials, threads) in FLEETS.items():
        seconds, megabytes = _measure(
            SIMULATE.format(clients=clients, iterations=iterations, trials=trials, threads=threads)
        )
        cost = seconds / (clients * iterations * trials)
        yardstick = yardstick or cost
        rows.append(
            [name, f"{seconds:.2g} s", f"{1e-6 / cost:.3g} M", f"{cost / yardstick:.2f}", f"{megabytes:.0f} MB"]
        )
    seconds, megabytes = _measure(PREDICT.format(clients=10_000_000))
    rows.append(["`predict`, K = 10,000,000", f"{seconds:.2g} s", "", "", f"{megabytes:.0f} MB"])
    return markdown_table(
        ["", "CPU time", "client updates per CPU second", "time per update, 16 trials = 1", "peak memory"], rows
    )


def _measure(script: str) -> tuple[float, float]:
    """Return the CPU time of a script, in seconds, and its peak memory, in megabytes."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes
