"""What the site does with pages that are written to be read in the repository as well.

The README is the site's first page. Links that leave docs/ (to source files, examples, the licence) lead nowhere on a
site, so they become plain text there.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Put the README in as the first page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    # From the root, pages of docs/ are docs/…; everything else leads out of the site.
    text = re.sub(r"\]\((?!docs/|https?:|#)([^)]+)\)", r"](../\1)", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave out links that lead out of docs/."""
    return _OUTSIDE.sub(r"\1", markdown)
