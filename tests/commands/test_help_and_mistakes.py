"""What users see first: help pages, and messages for mistakes. `python tests/commands/fixtures.py` writes them."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.cli

_SPEC = importlib.util.spec_from_file_location("command_fixtures", Path(__file__).parent / "fixtures.py")
fixtures = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(fixtures)


def test_help_pages_are_as_they_were_read_through() -> None:
    pages = fixtures.help_pages()
    assert sorted(pages) == sorted(path.name for path in fixtures.HELP.glob("*.txt"))
    for name, text in pages.items():
        assert text == (fixtures.HELP / name).read_text(encoding="utf-8"), name


def test_messages_for_mistakes_are_as_they_were_read_through() -> None:
    assert fixtures.mistakes() == fixtures.MISTAKES.read_text(encoding="utf-8")


def test_every_mistake_is_one_line_without_a_traceback() -> None:
    blocks = fixtures.MISTAKES.read_text(encoding="utf-8").strip().split("\n\n")
    assert len(blocks) >= 40
    for block in blocks:
        command, *message = block.split("\n")
        assert command.startswith("$ psofed ")
        assert len(message) == 1, block
        assert message[0].startswith("psofed: ")
