"""Break the code on purpose and see whether a test notices: ``python tests/breaking --help``.

The tree is copied, one line of the copy is changed, the tests that should notice are run there, and the line is put
back. What takes long to import is imported once, and every run is a fork of that process that knows nothing of psofed
yet. Kernels are compiled into a cache of the copy's own.
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from mutants import Mutant, mutants_of, sample
from which_tests import tests_for

ROOT = Path(__file__).parents[2]
PACKAGES = ("theory", "engine", "parts", "federation")
# Imported once, before the forks; nothing of psofed.
HEAVY = (
    "numba", "scipy.linalg", "scipy.sparse.linalg", "scipy.stats", "xarray", "pandas", "pytest", "typer",
    "flwr.app", "flwr.clientapp", "flwr.serverapp.strategy",
)  # fmt: skip
UNDECIDED = "undecided"
ENDLESS = 600
"""Seconds of computing after which a run is taken to go on for ever. A loaded machine does not count."""


class Tree:
    """A copy of the tree to break."""

    def __init__(self, folder: Path, limit: int = ENDLESS) -> None:
        self.folder, self.limit = folder, limit
        skip = shutil.ignore_patterns(
            "__pycache__", ".git", ".venv", "out", "site", "dist", ".*_cache", ".hypothesis"
        )
        shutil.copytree(ROOT, folder / "tree", ignore=skip)
        self.root = folder / "tree"
        self.fine: dict[tuple[str, ...], bool] = {}

    def is_fine(self, tests: tuple[str, ...]) -> bool:
        """Whether these tests pass while nothing is broken."""
        if tests not in self.fine:
            code, output = self.run(tests)
            self.fine[tests] = code == 0
            if code:
                print(
                    f"with nothing broken, {' '.join(tests)} end with {code}:\n{output[-3000:]}",
                    file=sys.stderr,
                )
        return self.fine[tests]

    def notices(self, mutant: Mutant, tests: tuple[str, ...]) -> str | None:
        """Return the test that notices a change, or None."""
        path = self.root / mutant.file
        text, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutant.apply(text), encoding="utf-8")
        try:
            code, output = self.run(tests)
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # Numba's cache looks at it
        if code == 0:
            return None
        found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", output, flags=re.M)
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "no end" if self.limit == ENDLESS else UNDECIDED
        return found[1] if found else f"ended with code {code}"

    def run(self, tests: tuple[str, ...]) -> tuple[int, str]:
        """Run tests in a fork and return pytest's exit code, or −SIGXCPU if they compute too long, and the output."""
        log = self.folder / "output"
        child = os.fork()
        if child == 0:
            self._run_here(tests, log)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), log.read_text(encoding="utf-8", errors="replace")

    def _run_here(self, tests: tuple[str, ...], log: Path) -> None:
        code = 3
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (self.limit, self.limit))
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.root)
            os.environ["PYTHONPATH"] = str(self.root / "src")
            sys.path.insert(0, str(self.root / "src"))
            import pytest

            code = int(pytest.main(["-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--list", type=Path, help="the changes of this file of JSON lines instead of drawn ones"
    )
    parser.add_argument("--limit", type=int, default=ENDLESS, help="seconds of computing for each change")
    parser.add_argument("--trust", action="store_true", help="do not run the tests with nothing broken first")
    parser.add_argument("--part", default="1/1", help="a part of the work, such as 1/2")
    parser.add_argument("--out", type=Path, help="append the lines to this file, and leave out what it has")
    options = parser.parse_args()
    if options.list:
        rows = [json.loads(line) for line in options.list.read_text(encoding="utf-8").splitlines()]
        drawn = [Mutant(*(row[name] for name in Mutant._fields)) for row in rows]
    else:
        files = [file for package in options.packages.split(",") for file in modules(package)]
        wanted = [file for file in files if any(text in file for text in options.only.split(","))]
        drawn = sample(ROOT, wanted, options.each, options.seed)
    part, parts = map(int, options.part.split("/"))
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
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        tree = Tree(Path(folder), options.limit)
        for mutant in drawn[part - 1 :: parts]:
            if tuple(mutant) in done:
                continue
            tests = tests_for(mutant.file)
            if not (options.trust or tree.is_fine(tests)):
                continue
            begun = time.monotonic()
            found = tree.notices(mutant, tests)
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
