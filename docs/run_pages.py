"""Runs the pages that are marked for it, and checks that they show what their commands and their Python print.

``python docs/run_pages.py`` (part of ``make docs``) runs every page whose first line is ``<!-- run -->``, writes true
output where a page shows another, and then fails, so that somebody looks at the difference. ``--check`` writes nothing;
the tests use it. A page that agreed is not run again until it, the code or the packages change (``.pages/``).

A page is Markdown with fenced blocks, run in order, in one folder and one Python session:

- ``console``: lines after a ``$`` are run, what follows is what they print; ``…`` stands for any lines. A command that
  ends in ``&`` runs until the page's end; the next one waits until it has named Ctrl-C;
- ``python``: is run, and prints into the next block if that has no language;
- a block after a line that is only a file's name in backticks and a colon is that file.

Blocks in other languages (``sh``, ``toml``, ``py``) are shown and not run. The terminal is 80 characters wide, or as
wide as the mark says: ``<!-- run, 100 columns -->``. A picture ``images/NAME`` is the file NAME that the page has
written. Speeds differ from machine to machine and are not compared.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import io
import os
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DONE = ROOT / ".pages"

_MARK = re.compile(r"\A<!-- run(?:, (\d+) columns)? -->\n")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.M | re.S)
_SPEED = re.compile(r"[\d.]+( million client updates per second)")
_PICTURE = re.compile(r"\((?:[\w.]+/)*images/([\w.]+)\)")


def keep_picture(source: Path, target: Path) -> None:
    """Copy a picture into the repository; a PNG without transparency, in 128 colours."""
    if source.suffix == ".png":
        from PIL import Image

        with Image.open(source) as picture:
            picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)
    else:
        shutil.copyfile(source, target)


def main() -> None:
    """Run the pages that the command line names, or all of them."""
    parser = argparse.ArgumentParser(prog="run_pages.py", description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="default: all that are marked")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--again", action="store_true", help="also what agreed before and has not changed")
    given = parser.parse_args()
    pages = [page.resolve() for page in given.pages] or marked_pages()
    waiting = [page for page in pages if given.again or not _stamp(page).exists()]
    # Pages share the workers' imports and kernels. Longest first, so that no worker is left with it alone.
    waiting.sort(key=lambda page: page.stat().st_size, reverse=True)
    with ProcessPoolExecutor(max_workers=min(2, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        wrong = [text for text in pool.map(_handle, waiting, [given.check] * len(waiting)) if text]
    print("".join(wrong), end="")
    print(f"{len(pages)} pages, {len(waiting)} of them run, {len(wrong)} wrong")
    sys.exit(bool(wrong))


def marked_pages() -> list[Path]:
    """Return the pages whose first line asks for it."""
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in pages if _MARK.match(page.read_text(encoding="utf-8"))]


def run_page(text: str, folder: Path) -> str:
    """Return the page with true output; `folder` is where it runs."""
    made, last, namespace, printed = [], 0, {"__name__": "__main__"}, None
    with contextlib.chdir(folder), Background() as background:
        for match in _BLOCK.finditer(text):
            language, body = match.groups()
            before = text[last : match.start()]
            name = re.search(r"^`([\w.]+)`:\s*\Z", before.rstrip().rpartition("\n")[2])
            if name:
                Path(name[1]).write_text(body, encoding="utf-8")
                printed = None
            elif language == "console":
                body = "".join(_run_command(*command, background) for command in split_block(body))
                printed = None
            elif language == "python":
                printed = _run_python(body, namespace)
            elif not language and printed is not None:
                body, printed = body if agrees(body, printed) else printed, None
            made += [before, f"```{language}\n{body}```"]
            last = match.end()
    return "".join([*made, text[last:]])


class Background:
    """Commands of ours that run until a page's end, at a free port in place of the usual one."""

    _USUAL_PORT, _READY = "9092", "Ctrl-C"

    def __enter__(self) -> "Background":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        self._running: list[subprocess.Popen[str]] = []
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):  # nodes before their server
            process.terminate()  # a shell in the background would let them ignore Ctrl-C
        for process in self._running:
            process.communicate(timeout=60)

    def at_port(self, command: str) -> str:
        """Return a command with the page's port."""
        return command.replace(self._USUAL_PORT, self._port)

    def start(self, words: list[str]) -> None:
        """Start a command, and wait until it works."""
        process = subprocess.Popen(
            [sys.executable, "-c", "from psofed.cli import main; main()", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if self._READY in line:
                # What it says later must go somewhere, or it would wait for a reader.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return
        raise RuntimeError("".join(said))


def split_block(text: str) -> list[tuple[str, str]]:
    r"""Return the commands of a block and what the page says they print.

    >>> split_block("$ echo a \\\n    b\na b\n$ true\n")
    [('echo a \\\n    b', 'a b\n'), ('true', '')]
    """
    found = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        end = next(i for i, line in enumerate(lines) if not line.endswith("\\\n")) + 1
        found.append(("".join(lines[:end]).rstrip("\n"), "".join(lines[end:])))
    return found


def agrees(shown: str, printed: str) -> bool:
    r"""Whether a page shows what was printed; ``…`` on a line of its own stands for any lines.

    >>> agrees("a\n…\nd\n", "a\nb\nc\nd\n"), agrees("a\n…\nd\n", "a\nb\n")
    (True, False)
    """
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line)
        for line in comparable(shown).splitlines(keepends=True)
    )
    return re.fullmatch(pattern, comparable(printed)) is not None


def comparable(text: str) -> str:
    """Return text without what differs from run to run."""
    return _SPEED.sub(r"N\1", text)


def pictures_of(text: str) -> list[str]:
    """Return the names of the pictures that a page shows."""
    return _PICTURE.findall(text)


def _handle(page: Path, check_only: bool) -> str:
    """Run one page; return what is wrong with it, empty if nothing."""
    text = page.read_text(encoding="utf-8")
    mark = _MARK.match(text)
    os.environ.update(COLUMNS=(mark and mark[1]) or "80", TERM="dumb", NO_COLOR="1")
    warnings.simplefilter("error")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            again = run_page(text, folder)
        except Exception as error:
            return f"{page.name}: {type(error).__name__}: {error}\n"
        finally:
            _forget(folder.resolve())
        if again == text:
            DONE.mkdir(exist_ok=True)
            for old in DONE.glob(f"{page.stem}-*"):
                old.unlink(missing_ok=True)
            _stamp(page).touch()
            return ""
        if not check_only:
            page.write_text(again, encoding="utf-8")
            for picture in pictures_of(text):
                if (folder / picture).exists():
                    keep_picture(folder / picture, DOCS / "images" / picture)
        return _difference(page, text, again)


def _forget(folder: Path) -> None:
    """Forget the modules that a page has loaded from its folder: the next page may have one of the same name."""
    os.environ.pop("PSOFED_PLUGINS", None)
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != folder]
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").resolve().parent == folder:
            del sys.modules[name]


def _difference(page: Path, text: str, again: str) -> str:
    import difflib

    lines = difflib.unified_diff(
        text.splitlines(True), again.splitlines(True), f"{page.name}, as it is", f"{page.name}, as it ran", n=1
    )
    return "".join(lines)


def _stamp(page: Path) -> Path:
    """Return the file that says: this page agreed, with this code and these packages."""
    return DONE / f"{page.stem}-{hashlib.sha256((page.read_text('utf-8') + _code()).encode()).hexdigest()[:16]}"


def _code() -> str:
    files = [Path(__file__), *sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "examples").rglob("*"))]
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        if file.is_file():
            digest.update(file.read_bytes())
    for package in ("numpy", "numba", "scipy", "pandas", "rich", "typer"):
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()


def _run_command(line: str, shown: str, background: Background) -> str:
    """Run a command; return it with what it prints, as the page shows that if it agrees."""
    command, _, target = background.at_port(line).replace("\\\n", " ").partition(" > ")
    if command.endswith(" &"):
        background.start(shlex.split(command[:-2])[1:])
        return f"$ {line}\n"
    command, _, filters = command.partition(" | ")
    words = shlex.split(command)
    if words[0] == "psofed":
        printed = _run_psofed(words[1:])
    elif words[0] == "python":
        printed = _run_script(ROOT / words[1], words[2:])
    elif words[0] == "cp":  # out of the repository
        shutil.copy(ROOT / words[1], words[2])
        printed = ""
    else:
        printed = _run_shell(command, "")
    if filters:
        printed = _run_shell(filters, printed)
    if target:
        Path(target).write_text(printed, encoding="utf-8")
        printed = ""
    printed = "".join(f"{text.rstrip()}\n" for text in printed.splitlines())
    return f"$ {line}\n{shown if agrees(shown, printed) else printed}"


def _run_psofed(words: list[str]) -> str:
    """Run one of our commands, as ``main()`` would, in this process: its imports and kernels are there already."""
    from typer.testing import CliRunner

    from psofed.cli import app, explain
    from psofed.common.errors import PsofedError

    done = CliRunner().invoke(app, words)
    if done.exception is None or isinstance(done.exception, SystemExit):
        return done.stdout
    if isinstance(done.exception, PsofedError):
        return f"psofed: {explain(done.exception, words[0])}\n"
    raise done.exception


def _run_script(script: Path, words: list[str]) -> str:
    output, given = io.StringIO(), sys.argv
    sys.argv = [str(script), *words]
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = given
    return output.getvalue()


def _run_shell(command: str, given: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", command], input=given, capture_output=True, text=True, check=True)
    return done.stdout


def _run_python(body: str, namespace: dict[str, Any]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(body, "page", "exec"), namespace)
    return output.getvalue()


if __name__ == "__main__":
    main()
