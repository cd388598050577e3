"""The documents tell the truth: pages made from code are up to date, examples run, parts are listed."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

import psofed
from psofed.parts.registry import FAMILIES, part_names
from psofed.scenario.file import EXAMPLE

pytestmark = [pytest.mark.docs, pytest.mark.cli, pytest.mark.parts, pytest.mark.scenario, pytest.mark.takes(13)]

ROOT = Path(__file__).parents[2]


def test_pages_made_from_code_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "make_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"


def test_the_example_file_is_what_the_command_prints() -> None:
    assert (ROOT / "examples" / "paper.toml").read_text(encoding="utf-8") == EXAMPLE


@pytest.mark.parametrize("family", FAMILIES)
def test_every_part_stands_in_the_table_of_parts(family: str) -> None:
    text = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    for kind in part_names(family):
        assert f"`{kind}`" in text, f"{family} {kind} is missing from docs/parts.md"


def _modules() -> list[str]:
    names = [m.name for m in pkgutil.walk_packages(psofed.__path__, "psofed.")]
    return [name for name in names if not name.startswith("psofed.federation")]


# Modules that need a package which `make install` does not install.
OPTIONAL = {"psofed.river": "river"}


@pytest.mark.parametrize("name", _modules())
def test_docstring_examples_hold(name: str) -> None:
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    assert doctest.testmod(module, optionflags=flags).failed == 0


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_a_public_name_without_docstring_or_example_is_noticed(monkeypatch) -> None:
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "make_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.undocumented() == []
    monkeypatch.setattr(psofed.simulate, "__doc__", "No example.")
    monkeypatch.setattr(psofed.predict, "__doc__", None)
    monkeypatch.setattr(psofed.Scenario.to_toml, "__doc__", None)
    assert module.undocumented() == [
        "a docstring of psofed.Scenario.to_toml",
        "a docstring of psofed.predict",
        "an example in the docstring of psofed.simulate",
    ]


def test_the_pictures_of_one_lie_are_those_its_script_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    one_lie = importlib.import_module("one_lie")
    for name, drawn in one_lie.pictures().items():
        assert drawn == (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
        assert ("<animate" in drawn) == (name == "one_lie.svg")  # the other is for readers who want no motion


def test_a_notebook_has_every_block_of_its_page_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    lessons = importlib.import_module("notebooks")
    for page in lessons.LESSONS.values():
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs" / page).read_text("utf-8"), flags=re.M | re.S)
        cells = [cell for cell in lessons.notebook(ROOT / "docs" / page)["cells"] if cell["cell_type"] == "code"]
        printed = "".join(output["text"] for cell in cells for output in cell["outputs"])
        sources = "\n".join(cell["source"] for cell in cells)
        place = 0
        for language, body in blocks:
            if language == "python":
                place = sources.index(body.rstrip("\n"), place)
            elif language == "console":
                shown = re.sub(r"^\$ .*\n(?:    .*\n)*", "", body, flags=re.M)
                assert shown in printed
            elif not language:
                assert body in printed
