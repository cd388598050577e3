"""Runs the commands and the Python of a page, and puts what they print where it is shown: `python docs/run_page.py`.

A page is Markdown with fenced blocks, run in order, in one folder and one Python session:

- ``console``: lines that begin with ``$`` are run, what follows is their output;
- ``python``: is run, and prints into the next block if that has no language;
- a block after a line that is only a file's name in backticks and a colon is that file.

A picture ``images/tutorial_NAME.png`` is the file ``NAME.png`` that the page has written. Speeds differ from machine to
machine, and are not compared.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGES = ("tutorial_student.md", "tutorial_researcher.md")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.M | re.S)
_SPEED = re.compile(r"[\d.]+( million client updates per second)")
_PICTURE = re.compile(r"\(images/tutorial_(\w+\.png)\)")


def run_page(text: str, folder: Path) -> str:
    """Return the page with true output; `folder` is where it runs."""
    made, last, namespace, printed = [], 0, {"__name__": "__main__"}, None
    with contextlib.chdir(folder):
        for match in _BLOCK.finditer(text):
            language, body = match.groups()
            before = text[last : match.start()]
            name = re.search(r"^`([\w.]+)`:\s*\Z", before.rstrip().rpartition("\n")[2])
            if name:
                Path(name[1]).write_text(body, encoding="utf-8")
                printed = None
            elif language == "console":
                body, printed = _run_console(body), None
            elif language == "python":
                printed = _run_python(body, namespace)
            elif not language and printed is not None:
                body, printed = printed, None
            made += [before, f"```{language}\n{body}```"]
            last = match.end()
    return "".join([*made, text[last:]])


def comparable(text: str) -> str:
    """Return a page without what differs from run to run."""
    return _SPEED.sub(r"…\1", text)


def pictures_of(text: str) -> list[str]:
    """Return the names of the pictures that a page shows and has made."""
    return _PICTURE.findall(text)


def _run_console(body: str) -> str:
    lines = [line for line in body.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{_run_command(line[2:])}" for line in lines)


def _run_command(line: str) -> str:
    from typer.testing import CliRunner

    from psofed.cli import app
    from psofed.common.errors import PsofedError

    command, _, target = line.partition(" > ")
    words = shlex.split(command)
    assert words[0] == "psofed", line
    done = CliRunner().invoke(app, words[1:], env={"COLUMNS": "80", "TERM": "dumb"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        if not isinstance(done.exception, PsofedError):
            raise done.exception
        return f"psofed: {done.exception}\n"  # as main() says it
    if target:
        Path(target).write_text(done.stdout, encoding="utf-8")
        return ""
    return "".join(f"{shown.rstrip()}\n" for shown in done.stdout.splitlines())


def _run_python(body: str, namespace: dict[str, Any]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(body, "page", "exec"), namespace)
    return output.getvalue()


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    for page in sys.argv[1:] or PAGES:
        path = DOCS / page
        with tempfile.TemporaryDirectory() as folder:
            text = run_page(path.read_text(encoding="utf-8"), Path(folder))
            path.write_text(text, encoding="utf-8")
            for picture in pictures_of(text):
                shutil.copyfile(Path(folder) / picture, DOCS / "images" / f"tutorial_{picture}")
