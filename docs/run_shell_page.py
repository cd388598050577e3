"""Runs the commands of a page and writes what they print below them: `python docs/run_shell_page.py docs/engineer.md`.

A block marked ``console`` holds commands, each after a ``$``, and what they print. They run in one folder, in the order
of the page, on a terminal 100 characters wide. A line ``…`` stands for lines left out. Pictures that they make are
copied to ``docs/images`` where the page shows them. The tests run the pages and compare.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
_BLOCK = re.compile(r"^```console\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def split_block(text: str) -> list[tuple[str, str]]:
    r"""Return the commands of a block and what the page says they print.

    >>> split_block("$ echo a \\\n    b\na b\n$ true\n")
    [('echo a \\\n    b', 'a b\n'), ('true', '')]
    """
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        lines = part.splitlines(keepends=True)
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\\n")) + 1
        found.append(("".join(lines[:end]).rstrip("\n"), "".join(lines[end:])))
    return found


def run_command(command: str, folder: Path) -> str:
    """Run a command of a page as a shell would and return what it prints; if it fails, its errors too.

    Notes on kernels that are compiled for the first time go to stderr, and are no part of a page.
    """
    psofed = f'"{sys.executable}" -W ignore -c "from psofed.cli import main; main()"'
    command = re.sub(r"\bpsofed (?=[a-z])", lambda _: psofed + " ", command)
    command = re.sub(r"\bpython (?=[\w./]+\.py)", lambda _: f'"{sys.executable}" ', command)
    command = command.replace("examples/", f"{ROOT}/examples/")
    environment = {**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    printed = done.stdout + (done.stderr if done.returncode else "")
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def agrees(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed; ``…`` on a line of its own stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line) for line in shown.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, printed) is not None


def rewrite(page: Path) -> None:
    """Run a page and write what its commands print into it; blocks with ``…`` must agree already."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def fill(match: re.Match[str]) -> str:
            out = ""
            for command, shown in split_block(match[1]):
                printed = run_command(command, folder)
                is_cut = "\n…\n" in f"\n{shown}"
                if is_cut and not agrees(shown, printed):
                    print(f"{page.name}: {command}\nprints\n{printed}", file=sys.stderr)
                out += f"$ {command}\n" + (shown if is_cut else printed)
            return f"```console\n{out}```\n"

        page.write_text(_BLOCK.sub(fill, text), encoding="utf-8")
        for image in re.findall(r"\]\(images/([^)]+)\)", text):
            if (folder / image).exists():
                shutil.copy(folder / image, page.parent / "images" / image)


def blocks(page: Path) -> list[str]:
    """Return the console blocks of a page."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        rewrite(Path(argument))
