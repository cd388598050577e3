"""Phrases that readers stumble over stay out of the source, the documentation and the help."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
FILES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").glob("*.py")),
    *sorted((ROOT / "tests" / "commands").rglob("*.txt")),  # every help page, and messages for typical mistakes
    *sorted((ROOT / "examples").glob("*.py")),
    *sorted((ROOT / "examples").glob("*.toml")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "pyproject.toml", "Makefile")),
]

# Each phrase, and what to write instead.
PHRASES = {
    r"so many": "name the number: `keep` rounds, this number of entries",
    r"anew|afresh": "again, redrawn, newly",
    r"of now": "current",
    r"who lies?|liars?": "Byzantine clients",
    r"going on|goes on|go on with": "continue",
    r"mend|mends|mended": "fix, correct",
    r"rooms?|house": "package, module; scratch for memory; space on a page",
    r"of one's own|of the user's own": "your own, custom",
    r"""(?m:^\s*[rf]?"{3}What\b)""": "a docstring that starts with a verb or a noun",
}
PATTERNS = [
    (re.compile(phrase if phrase.startswith("(?") else rf"\b(?:{phrase})\b", re.IGNORECASE), advice)
    for phrase, advice in PHRASES.items()
]


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_phrase_makes_a_reader_stumble(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    found = [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()!r}; write: {advice}"
        for pattern, advice in PATTERNS
        for match in pattern.finditer(text)
    ]
    assert not found, "\n".join(found)
