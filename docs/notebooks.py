"""Make notebooks of the tutorials: the same text, commands and outputs, as cells.

A page that `run_pages.py` runs is a notebook already: its blocks are run in order, in one folder and one session. Here
``console`` blocks become cells for bash, ``python`` blocks cells for Python, files are written by a cell, and what the
page prints is the cell's output. The site offers them as downloads; `python docs/notebooks.py FOLDER` writes them, and
`--run` runs them too, with Jupyter's nbclient, in an environment in which it is installed.
"""

import argparse
import base64
import json
import re
from pathlib import Path
from typing import Any

from run_pages import _BLOCK, DOCS, ROOT, split_block

LESSONS = {
    "first_hour": "tutorial_student.md",
    "own_attack_and_rule": "tutorial_researcher.md",
    "table_to_federation": "engineer.md",
}
_FILE = re.compile(r"^`([\w.]+)`:\s*\Z")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(images/([\w.]+\.png)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")
_RUNNING = "background.pids"  # processes that the lesson has started
_MARK = re.compile(r"<!--.*?-->\n", flags=re.S)


def notebook(page: Path) -> dict[str, Any]:
    """Return a page as a notebook (format 4.5)."""
    text, last, cells = _MARK.sub("", page.read_text(encoding="utf-8")), 0, [_install(page)]
    for match in _BLOCK.finditer(text):
        language, body = match.groups()
        before, last = text[last : match.start()], match.end()
        name = _FILE.search(before.rstrip().rpartition("\n")[2])
        if not language and cells[-1]["cell_type"] == "code" and not before.strip():
            cells[-1]["outputs"] = [_printed(body)]
            continue
        shown = before if name is None else before.rstrip()[: before.rstrip().rfind("\n") + 1]
        cells += _prose(shown)
        if name is not None:
            cells.append(_code(f"%%writefile {name[1]}\n{body}"))
        elif language == "python":
            cells.append(_code(body))
        elif language == "console":
            cells += _commands(split_block(body))
        else:
            cells += _prose(match[0])
    cells += _prose(text[last:])
    if any(_RUNNING in cell["source"] for cell in cells):
        cells += _prose("Stop what runs in the background:")
        cells.append(_code(f"%%bash\nkill $(cat {_RUNNING})"))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def notebooks() -> dict[str, str]:
    """Return the text of each notebook by its file's name."""
    return {
        f"{name}.ipynb": json.dumps(notebook(DOCS / page), ensure_ascii=False, indent=1) + "\n"
        for name, page in LESSONS.items()
    }


def _install(page: Path) -> dict[str, Any]:
    extra = "[federation]" if "psofed federation" in page.read_text(encoding="utf-8") else ""
    return _code(
        f"# This kernel's environment needs psofed. In a clone: pip install -e '.{extra}'\nimport os\nimport sys\n\n"
        "# Commands of this kernel's environment, in plain text.\n"
        'os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])\n'
        'os.environ.update(COLUMNS="100", NO_COLOR="1")\n'
    )


def _commands(commands: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a cell for each run of commands, and the scripts of the repository that they need."""
    cells, lines, printed = [], [], ""
    for number, (command, output) in enumerate(commands):
        if script := re.match(r"python (examples/\S+)", command):
            source = (ROOT / script[1]).read_text(encoding="utf-8")
            cells.append(_code(f"%%writefile {Path(script[1]).name}\n{source}"))
            command = command.replace(script[1], Path(script[1]).name)
        if command.endswith(" &"):  # until the last cell; the next command waits until it works
            log = f"background_{number}.log"
            command = (
                f"{command[:-2]} > {log} 2>&1 &\necho $! >> {_RUNNING}\nuntil grep -q Ctrl-C {log}; do sleep 1; done"
            )
        lines.append(command)
        printed += output
    magic = "%%bash --no-raise-error" if "psofed: " in printed else "%%bash -e"  # a mistake that is shown
    return [*cells, _code("\n".join([magic, *lines]), printed)]


def _prose(text: str) -> list[dict[str, Any]]:
    """Return a cell of Markdown; it carries its pictures, and links into the site are plain text."""
    attachments = {}
    for _, name in _IMAGE.findall(text):
        data = base64.b64encode((DOCS / "images" / name).read_bytes()).decode()
        attachments[name] = {"image/png": data}
    text = _LINK.sub(r"\1", _IMAGE.sub(r"![\1](attachment:\2)", text)).strip()
    cell = {"cell_type": "markdown", "metadata": {}, "source": text}
    return [cell | ({"attachments": attachments} if attachments else {})] if text else []


def _code(source: str, printed: str = "") -> dict[str, Any]:
    outputs = [_printed(printed)] if printed else []
    return {
        "cell_type": "code", "metadata": {}, "source": source.rstrip("\n"), "outputs": outputs, "execution_count": None
    }  # fmt: skip


def _printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _run(path: Path) -> None:
    """Run a notebook in its folder; a cell that raises ends it."""
    import nbformat
    from nbclient import NotebookClient

    lesson = nbformat.read(path, as_version=4)
    nbformat.validate(lesson)
    NotebookClient(lesson, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    nbformat.write(lesson, path)


def main() -> None:
    """Write the notebooks, and run them if asked."""
    parser = argparse.ArgumentParser(prog="notebooks.py", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="also run them (needs nbclient and ipykernel)")
    given = parser.parse_args()
    for name, text in notebooks().items():
        folder = given.folder / Path(name).stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        if given.run:
            _run(folder / name)
        print(folder / name)


if __name__ == "__main__":
    main()
