"""Pages that can be run are: every command and every line of Python prints what the page shows."""

import doctest
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docs, pytest.mark.cli]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "run_pages.py"
SPEC = importlib.util.spec_from_file_location("run_pages", SCRIPT)
RUN = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RUN)


@pytest.mark.slow  # and `make docs` runs them
@pytest.mark.skipif(os.name == "nt", reason="the pages use a shell's commands")
def test_pages_show_what_they_print() -> None:
    """What `make docs` has run on the same code is not run again."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"run `make docs`\n{done.stdout}{done.stderr}"


def test_the_readme_and_the_tutorials_are_among_them() -> None:
    names = {page.name for page in RUN.marked_pages()}
    assert names >= {"README.md", "tutorial_student.md", "engineer.md", "tutorial_researcher.md"}


def test_output_that_is_wrong_is_noticed(tmp_path) -> None:
    text = "```python\nprint(1 + 1)\n```\n\n```\n3\n```\n"
    assert RUN.run_page(text, tmp_path) == text.replace("3", "2")


def test_a_command_that_prints_something_else_is_noticed(tmp_path) -> None:
    text = "```console\n$ psofed simulate none.toml\nfine\n```\n"
    assert "no such file" in RUN.run_page(text, tmp_path)


def test_a_page_that_has_changed_is_run_again(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- run -->\n1\n", encoding="utf-8")
    before = RUN._stamp(page)
    page.write_text("<!-- run -->\n2\n", encoding="utf-8")
    assert RUN._stamp(page) != before


def test_examples_of_the_runner_hold() -> None:
    assert doctest.testmod(RUN).failed == 0


def test_pictures_are_there_and_small() -> None:
    for page in RUN.marked_pages():
        for picture in RUN.pictures_of(page.read_text(encoding="utf-8")):
            assert (ROOT / "docs" / "images" / picture).stat().st_size < 150_000
