"""Simulate the federation from seeds: ``python tests/simulated --help``."""

import argparse
import csv
import gc
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from breaks import BREAKS
from plans import draw_plan
from shrinking import find_break, promise_of, shrink, tell
from simulation import Finding, Simulation, simulate

from psofed.federation.server.checkpoint import ServerState

TABLE = Path(__file__).parents[2] / "docs" / "tables" / "federation_breaks.csv"


def main() -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(description="Deterministic simulation of the federation.")
    parser.add_argument("seeds", nargs="*", type=int, help="seeds to run; a finding is shortened and told in words")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of each simulation (default: 100)")
    parser.add_argument("--minutes", type=float, help="run one seed after the other for that long")
    parser.add_argument("--begin", type=int, help="first seed of --minutes (default: from the commit's id)")
    parser.add_argument("--story", action="store_true", help="tell what happened in seeds without a finding as well")
    parser.add_argument("--memory", action="store_true", help="say how much memory psofed holds, at ten moments")
    parser.add_argument(
        "--breaks", nargs="*", choices=[*BREAKS, []], help="break the code, and count seeds until found"
    )
    parser.add_argument("--most", type=int, default=150, help="seeds to try for each break (default: 150)")
    parser.add_argument("--write", action="store_true", help="write the table of --breaks to docs/tables")
    options = parser.parse_args()
    if options.breaks is not None:
        return show_breaks(options.breaks or list(BREAKS), options.rounds, options.most, options.write)
    if options.minutes is not None:
        begin = seed_of_commit() if options.begin is None else options.begin
        return run_for(options.minutes, begin, options.rounds)
    if options.memory:
        return measure(options.seeds[0] if options.seeds else 0, options.rounds)
    return max([replay(seed, options.rounds, options.story) for seed in options.seeds or [0]])


def replay(seed: int, rounds: int, story: bool) -> int:
    """Run one seed, and describe what happened."""
    try:
        simulation = simulate(draw_plan(seed, rounds))
    except Finding as finding:
        print(f"seed {seed}: {finding}\nShortening it …", flush=True)
        print(tell(shrink(finding)))
        return 1
    print(f"seed {seed}: {rounds} rounds, every promise kept; {sum(simulation.faults.values())} faults")
    if story:
        print("\n".join(f"{when:10.3f} s  {text}" for when, text in simulation.world.story))
    return 0


def measure(seed: int, rounds: int) -> int:
    """Run one seed for long, and return 1 if the memory that psofed holds has grown in its second half."""
    simulation, held = Simulation(draw_plan(seed, rounds)), []
    check = simulation.promises.check_round
    allocated = [tracemalloc.Filter(True, "*/psofed/*")]

    def check_round(state: ServerState) -> None:
        check(state)
        if state.round_number % max(1, rounds // 10) == 0:
            gc.collect()
            found = tracemalloc.take_snapshot().filter_traces(allocated).statistics("filename")
            held.append(sum(entry.size for entry in found) / 1e6)
            print(f"round {state.round_number}: {held[-1]:.2f} MB", flush=True)

    simulation.promises.check_round = check_round  # type: ignore[method-assign]
    tracemalloc.start()
    simulation.run()
    return int(held[-1] > 1.1 * max(held[: len(held) // 2]))


def run_for(minutes: float, begin: int, rounds: int) -> int:
    """Run seeds until the time is over; report every finding, then a table of the faults by kind."""
    print(f"Seeds from {begin} on, {rounds} rounds each", flush=True)
    end, seed, cpu = time.monotonic() + 60 * minutes, begin, time.process_time()
    faults, findings, simulated = Counter[str](), Counter[str](), 0.0
    while time.monotonic() < end:
        try:
            simulation = simulate(draw_plan(seed, rounds))
        except Finding as finding:
            simulation = finding.simulation
            findings[promise_of(finding)] += 1
            print(f"seed {seed}: {finding}\nReplay it: make simulated SEED={seed} ROUNDS={rounds}", flush=True)
            if sum(findings.values()) == 1:
                print("Shortening it …", flush=True)
                print(tell(shrink(finding)), flush=True)
        faults += simulation.faults
        simulated += simulation.world.now
        seed += 1
    cpu = time.process_time() - cpu
    print(
        f"{seed - begin} seeds (from {begin} on) of {rounds} rounds, {simulated / 3600:.1f} simulated hours in "
        f"{cpu / 60:.0f} CPU minutes, {sum(faults.values())} faults, "
        f"{sum(findings.values()) or 'no'} broken promises {dict(findings) or ''}\n"
    )
    print("| fault | times |\n|---|---|")
    print("\n".join(f"| {kind} | {count:,} |" for kind, count in sorted(faults.items())))
    return 1 if findings else 0


def seed_of_commit() -> int:
    """Return a first seed that follows from the current commit, so that each commit meets new faults."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return 1000 + (int(commit[:7], 16) if commit else 0)


def show_breaks(names: list[str], rounds: int, most: int, write: bool) -> int:
    """Break the code in each way, and count the seeds until the simulation finds it."""
    rows, missed = [], 0
    for name in names:
        begun = time.process_time()
        found = find_break(name, rounds, most)
        seconds = time.process_time() - begun
        missed += found is None
        count, promise = ("not found", "–") if found is None else (str(found[0] + 1), promise_of(found[1]))
        print(f"{name}: {count} seeds, {seconds:.0f} CPU s, {promise}", flush=True)
        rows.append((BREAKS[name].sentence, count, promise))
    if write:
        with TABLE.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerows([("deliberate break", "seeds until found", "promise broken"), *rows])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
