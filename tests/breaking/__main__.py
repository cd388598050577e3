"""Break the code on purpose and see whether a test notices: ``python tests/breaking --help``.

The tree is copied, one line of the copy is changed, the tests that should notice are run there, and the line is put
back. What takes long to import is imported once, and every run is a fork of that process that knows nothing of psofed
yet. Kernels are compiled into a cache of the copy's own.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from mutants import Mutant, draw, mutants_of, sample
from tree import UNDECIDED, Tree
from which_tests import tests_for

ROOT = Path(__file__).parents[2]
PACKAGES = ("theory", "engine", "parts", "federation")
# Imported once, before the forks; nothing of psofed.
HEAVY = (
    "numba", "scipy.linalg", "scipy.sparse.linalg", "scipy.stats", "xarray", "pandas", "pytest", "typer",
    "flwr.app", "flwr.clientapp", "flwr.serverapp.strategy",
)  # fmt: skip


def modules(package: str) -> list[str]:
    """The files of a package that have something to change."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "src" / "psofed" / package).rglob("*.py"))
    return [file for file in files if mutants_of(ROOT, file)]


def main() -> None:
    """Break and report, a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", default=",".join(PACKAGES), help="which, by comma")
    parser.add_argument("--only", default="", help="files whose path contains one of these, by comma")
    parser.add_argument("--each", type=int, default=1, help="changes of every module")
    parser.add_argument(
        "--draw", type=int, help="instead, this many of all changes of each package, all alike"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--list", type=Path, help="the changes of this file of JSON lines instead of drawn ones"
    )
    parser.add_argument("--limit", type=int, help="seconds of computing for each change; over it, undecided")
    parser.add_argument(
        "--tests", default="", help="these tests for all changes, by comma, instead of the usual ones"
    )
    parser.add_argument("--trust", action="store_true", help="do not run the tests with nothing broken first")
    parser.add_argument(
        "--quick", action="store_true", help="only tests under a second, and at most 16 cases of each"
    )
    parser.add_argument("--part", default="1/1", help="a part of the work, such as 1/2")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the copy and what it compiles, for the next time"
    )
    parser.add_argument("--out", type=Path, help="append the lines to this file, and leave out what it has")
    options = parser.parse_args()
    if options.list:
        rows = [json.loads(line) for line in options.list.read_text(encoding="utf-8").splitlines()]
        drawn = [Mutant(*(row[name] for name in Mutant._fields)) for row in rows]
    else:
        drawn = []
        for package in options.packages.split(","):
            files = [
                file for file in modules(package) if any(text in file for text in options.only.split(","))
            ]
            if options.draw:
                drawn += draw(ROOT, files, options.draw, f"{options.seed} {package}")
            else:
                drawn += sample(ROOT, files, options.each, options.seed)
    part, parts = map(int, options.part.split("/"))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if options.out and options.out.exists():
        rows = map(json.loads, options.out.read_text(encoding="utf-8").splitlines())
        done = {tuple(row[name] for name in Mutant._fields) for row in rows}
    sys.dont_write_bytecode = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in HEAVY:
            if find_spec(name.split(".")[0]):
                __import__(name)
    caught = tried = 0
    with tempfile.TemporaryDirectory(prefix="psofed-breaking-") as folder:
        tree = Tree(ROOT, (options.keep or Path(folder)).absolute(), options.limit, options.quick)
        for mutant in drawn[part - 1 :: parts]:
            if tuple(mutant) in done:
                continue
            tests = tuple(options.tests.split(",")) if options.tests else tests_for(mutant.file)
            begun = time.monotonic()
            stages = iter([tests]) if options.trust else tree.stages(tests)
            found = next((found for stage in stages if (found := tree.notices(mutant, stage))), None)
            tried, caught = tried + 1, caught + (found not in (None, UNDECIDED))
            row = mutant._asdict() | {"caught_by": found, "seconds": round(time.monotonic() - begun, 1)}
            line = json.dumps(row, ensure_ascii=False)
            print(line, flush=True)
            if options.out:
                with options.out.open("a", encoding="utf-8") as out:
                    out.write(line + "\n")
    print(f"{caught} of {tried} noticed", file=sys.stderr)


if __name__ == "__main__":
    main()
