"""A copy of the tree, in which a line is broken and tests are run."""

import compileall
import contextlib
import hashlib
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
from kernels import use_kernels
from mutants import Mutant
from order import LikelyFirst, read, write

UNDECIDED = "undecided"
LEAST, TIMES, ENDLESS = 120, 5, 1200
"""A run has no end if it computes longer than this many seconds, and than this many times what it takes unbroken."""


class Tree:
    """A copy of the tree to break."""

    def __init__(self, original: Path, folder: Path, limit: int | None = None, quick: bool = False) -> None:
        self.folder, self.limit, self.quick = folder, limit, quick
        self.durations, self.root = folder / "durations.json", folder / "tree"
        skip = shutil.ignore_patterns(
            "__pycache__", ".git", ".venv", "out", "site", "dist", ".*_cache", ".hypothesis"
        )
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(original, self.root, ignore=skip)
        # Bytecode that is used only if the hash of its source is right: not that of the broken file.
        compileall.compile_dir(self.root / "src", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        self.code = b"".join(
            hashlib.sha256(file.read_bytes()).digest() for file in sorted((self.root / "src").rglob("*.py"))
        )

    def stages(self, tests: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield tests that pass while nothing is broken: first all that are known to, then file by file the others.

        That and how long each takes is kept for the next changes. So what nobody needs is never run.
        """
        file = self.folder / "fine.json"
        parts = [tests] if "-k" in tests else [(test,) for test in tests]
        fine = [part for part in parts if read(file).get(self._key(part))]
        if fine:
            yield tuple(test for part in fine for test in part)
        for part in parts:
            if part in fine:
                continue
            code, output = self.run(part)
            if code == 0:
                write(file, {**read(file), self._key(part): True})
                yield part
            else:
                print(f"with nothing broken, {part} ends with {code}:\n{output[-3000:]}", file=sys.stderr)

    def _key(self, tests: tuple[str, ...]) -> str:
        """Tests, the code they are about, and their own."""
        digest = hashlib.sha256(self.code)
        for test in tests:
            if (file := self.root / test.split("::")[0]).exists():
                digest.update(file.read_bytes())
        return f"{'quick ' * self.quick}{' '.join(tests)} {digest.hexdigest()[:16]}"

    def notices(self, mutant: Mutant, tests: tuple[str, ...]) -> str | None:
        """Return the test that notices a change, or None."""
        path = self.root / mutant.file
        text, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutant.apply(text), encoding="utf-8")
        try:
            code, output = self.run(tests, mutant)
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # Numba's cache looks at it
        if code in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            return None
        found = re.search(r"^(?:FAILED|ERROR) (\S+?(?:\[.*\])?)(?: - .*)?$", output, flags=re.M)
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "no end" if self.limit is None else UNDECIDED
        if not found:
            return f"ended with code {code}"
        noticed = read(file := self.durations.with_name("noticed.json"))
        noticed[mutant.package] = sorted({*noticed.get(mutant.package, []), found[1]})
        write(file, noticed)
        return found[1].split("[")[0]

    def run(self, tests: tuple[str, ...], broken: Mutant | None = None) -> tuple[int, str]:
        """Run tests in a fork and return pytest's exit code, or −SIGXCPU if they compute too long, and the output."""
        log = self.folder / "output"
        took = sum(seconds for test, seconds in read(self.durations).items() if test.startswith(tests))
        limit = self.limit or int(max(LEAST if broken else ENDLESS, TIMES * took))
        child = os.fork()
        if child == 0:
            self._run_here(tests, log, limit, broken)
        # What waits for ever computes nothing; so there is a limit by the clock as well.
        code = _wait(child, 2 * limit)
        return code, log.read_text(encoding="utf-8", errors="replace")

    def _run_here(self, tests: tuple[str, ...], log: Path, limit: int, broken: Mutant | None) -> None:
        code = 3
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self.root)
            os.environ["PYTHONPATH"] = str(self.root / "src")
            sys.path.insert(0, str(self.root / "src"))
            sys.dont_write_bytecode = bool(broken)  # pytest keeps the tests it has rewritten
            use_kernels(
                self.root / "src", self.folder, broken.file if broken else "", broken.line if broken else 0
            )
            order = LikelyFirst(tests, self.durations, broken.package if broken else "", self.quick)
            options = ["-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow and not grid"]
            code = int(pytest.main([*options, *tests], plugins=[order]))
            if not broken:
                order.keep()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _wait(child: int, patience: float) -> int:
    """Return the exit code of a child; it and what it has left running are killed, at the latest after `patience`."""
    end, ended = time.monotonic() + patience, 0
    while not ended and time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
