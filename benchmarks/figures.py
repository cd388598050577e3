"""How long the paper's nine figures take, from nothing: no finished cells, compiled kernels on disk."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._timing import markdown_table

FULL_BAR, QUICK_BAR, ERROR_BAR = 180.0, 20.0, 0.05


def run() -> str:
    """Return a Markdown table: wall time and worst standard error of quick and full runs, and a resumed one."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        reproduce(Path(folder) / "warm", "--trials", "2", "fig1", "fig2")  # compiles what is not on disk yet
        quick, full = Path(folder) / "quick", Path(folder) / "full"
        for name, out, options, bar in (
            ("`psofed reproduce all --quick`", quick, ["--quick"], f"{QUICK_BAR:.0f} s"),
            ("`psofed reproduce all`", full, [], f"{FULL_BAR:.0f} s"),
            ("the same again, all cells finished", full, [], "–"),
        ):
            seconds = reproduce(out, *options, "all")
            rows.append([name, f"{seconds:.1f} s", bar, f"{worst_error(out):.3f} dB"])
    return markdown_table(["all nine figures", "wall time", "bar", "largest standard error"], rows)


def reproduce(out: Path, *options: str) -> float:
    command = [sys.executable, "-c", "from psofed.cli import main; main()", "reproduce", "--out", str(out), *options]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def worst_error(out: Path) -> float:
    documents = (json.loads(path.read_text()) for path in out.glob("fig?.json"))
    return max(document["worst_standard_error_db"] for document in documents)
