"""Simulate the federation from seeds: ``python tests/simulated --help``."""

import argparse
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
warnings.simplefilter("ignore", DeprecationWarning)  # Typer's and Click's, while Flower is imported

from breaks import BREAKS, broken  # noqa: E402
from plans import draw_plan  # noqa: E402
from shrinking import promise_of, shrink, tell  # noqa: E402
from simulation import Finding, simulate  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "federation.md"
BEGIN, END = "<!-- breaks: python tests/simulated --rounds 20 --breaks --write -->", "<!-- end of breaks -->"


def main() -> int:
    """Do what the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(description="Deterministic simulation of the federation.")
    parser.add_argument(
        "seeds", nargs="*", type=int, help="seeds to run; a finding is shortened and told in words"
    )
    parser.add_argument("--rounds", type=int, default=100, help="rounds of each simulation (default: 100)")
    parser.add_argument("--minutes", type=float, help="run one seed after the other for that long")
    parser.add_argument("--begin", type=int, default=1000, help="the first seed of --minutes (default: 1000)")
    parser.add_argument(
        "--story", action="store_true", help="tell what happened in seeds without a finding as well"
    )
    parser.add_argument(
        "--breaks", nargs="*", choices=[*BREAKS, []], help="break the code, and count seeds until found"
    )
    parser.add_argument("--most", type=int, default=150, help="seeds to try for each break (default: 150)")
    parser.add_argument(
        "--write", action="store_true", help="write the table of --breaks into docs/federation.md"
    )
    options = parser.parse_args()
    if options.breaks is not None:
        return show_breaks(options.breaks or list(BREAKS), options.rounds, options.most, options.write)
    if options.minutes is not None:
        return run_for(options.minutes, options.begin, options.rounds)
    return max([replay(seed, options.rounds, options.story) for seed in options.seeds or [0]])


def replay(seed: int, rounds: int, story: bool) -> int:
    """Run one seed, and tell what happened."""
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


def run_for(minutes: float, begin: int, rounds: int) -> int:
    """Run seeds until the time is over or a promise is broken, and count the faults."""
    end, seed, faults, cpu = time.monotonic() + 60 * minutes, begin, Counter[str](), time.process_time()
    while time.monotonic() < end:
        try:
            faults += simulate(draw_plan(seed, rounds)).faults
        except Finding as finding:
            print(f"seed {seed}: {finding}\nShortening it …", flush=True)
            print(tell(shrink(finding)))
            print(f"Replay it: make simulated SEED={seed} ROUNDS={rounds}")
            return 1
        seed += 1
    cpu = time.process_time() - cpu
    print(f"{seed - begin} seeds of {rounds} rounds in {cpu:.0f} CPU s, every promise kept. Faults:")
    for kind, count in sorted(faults.items()):
        print(f"  {count:6d}  {kind}")
    return 0


def show_breaks(names: list[str], rounds: int, most: int, write: bool) -> int:
    """Break the code in each way, and count the seeds until the simulation finds it."""
    rows, missed = [], 0
    for name in names:
        begun, found = time.process_time(), None
        shows_in = set(BREAKS[name].shows_in)
        for seed in range(most):
            plan = draw_plan(seed, rounds)
            if shows_in and shows_in.isdisjoint(incident.kind for incident in plan.incidents):
                continue
            try:
                with broken(name):
                    simulate(plan)
            except Finding as finding:
                found = seed, promise_of(finding)
                break
        seconds = time.process_time() - begun
        missed += found is None
        count, promise = ("not found", "–") if found is None else (str(found[0] + 1), found[1])
        print(f"{name}: {count} seeds, {seconds:.0f} CPU s, {promise}", flush=True)
        rows.append(f"| {BREAKS[name].sentence} | {count} | {promise} |")
    table = "\n".join(["| deliberate break | seeds until found | promise broken |", "|---|---|---|", *rows])
    if write:
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
