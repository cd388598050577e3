"""Installs a wheel into an empty environment and tries it there, away from the source tree: `make dist`.

An editable install hides a file that is missing from the wheel; this does not. It runs the README's five lines, the
command line, and the tests named below.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Together they import nearly every module and read every data file.
TESTS = (
    "unit/test_scenario.py",
    "unit/test_results.py",
    "unit/test_attacks.py",
    "features/test_own_data.py",
    "unit/test_theory.py",
    "figures/test_figures_printed.py",
)


def main() -> None:
    """Try the wheel that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--constraints", type=Path, help="versions to install, as pip's --constraint takes them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_wheel(given.wheel.resolve(), Path(folder), given.constraints)
    print(f"{given.wheel.name}: installs alone and works")


def check_wheel(wheel: Path, folder: Path, constraints: Path | None = None) -> None:
    """Install `wheel` in `folder` and try it; raise CalledProcessError for the first thing that fails."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    limits = [] if constraints is None else ["--constraint", str(constraints.resolve())]
    tools = ["pytest>=8,<10", "hypothesis>=6.100"]
    run(folder, python, "-m", "pip", "install", "--quiet", *limits, f"{wheel}[parquet]", *tools)

    code, expected = five_lines()
    said = run(folder, python, "-c", code)
    if said.strip() != expected.strip():
        raise SystemExit(f"the README's five lines say\n{said}instead of\n{expected}")

    command = python.parent / "psofed"
    run(folder, command, "--version")
    run(folder, command, "simulate", "--help")
    (folder / "s.toml").write_text(run(folder, command, "example"), encoding="utf-8")
    run(folder, command, "simulate", "s.toml", "--trials", "4", "--set", "iterations=50", "--json")
    run(folder, command, "predict", "s.toml", "--json")
    run(folder, command, "reproduce", "fig1", "--quick", "--out", "out")

    shutil.copytree(ROOT / "tests", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    # What other people's old and new versions hold against each other is not ours; `make test` takes it seriously.
    run(folder, python, "-m", "pytest", "-W", "ignore::DeprecationWarning", *(f"tests/{name}" for name in TESTS))


def five_lines() -> tuple[str, str]:
    """Return the README's first Python block, and the output shown below it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", text, flags=re.DOTALL)
    if found is None:
        raise SystemExit("README.md has no Python block with its output below it")
    return found.group(1), found.group(2)


def run(folder: Path, *command: object) -> str:
    """Run a command in `folder` and return what it prints; show that if it fails."""
    done = subprocess.run([str(word) for word in command], cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()
    return done.stdout


if __name__ == "__main__":
    main()
