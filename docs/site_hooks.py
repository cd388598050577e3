"""Adapt pages for the site that are also read in the repository.

- The README is the site's first page.
- Links that leave docs/ (to source files, examples, the licence) lead to the repository if its address is known
  (``PSOFED_REPO_URL``), and are plain text otherwise.
- The playground's tables are computed.
- Formulas between dollar signs become MathML while the site is built: nothing is fetched or computed when it is read.
"""

import html
import posixpath
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

from playground_tables import script

ROOT = Path(__file__).parent.parent
MADE = ("api.md", "cli.md", "parts.md")  # by make_pages.py
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)[^)\s]*)\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.S)

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):<code>([^<]+)</code>")


def on_config(config: Any) -> Any:
    """Leave out edit links where nobody has said where the repository is."""
    if not config.repo_url:
        config.edit_uri = None
    return config


def on_files(files: Files, config: Any) -> Files:
    """Put the README in as the first page; pages made from code are edited where they are made."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    # From the root, pages of docs/ are docs/…; everything else leads out of the site.
    text = re.sub(r"\]\((?!docs/|https?:|#)([^)]+)\)", r"](../\1)", text).replace("](docs/", "](")
    first = File.generated(config, "index.md", content=text)
    first.edit_uri = "../README.md"
    files.append(first)
    files.append(File.generated(config, "assets/playground_data.js", content=script()))
    for file in files:
        if file.src_uri in MADE:
            file.edit_uri = "make_pages.py"
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, **_: Any) -> str:
    """Lead links that leave docs/ to the repository, or nowhere."""

    def lead(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match[2]))
        if path.startswith("docs/"):
            return match[0]
        return (
            f"[{match[1]}]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else match[1]
        )

    return _LINK.sub(lead, markdown)


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Turn formulas into MathML; one that is not understood fails the build."""

    def render(match: re.Match[str]) -> str:
        source = html.unescape(match[3]).strip()
        try:
            made = to_mathml(source, is_block=match[2] == "[")
        except Exception as error:
            raise ValueError(
                f"{page.file.src_uri}: {type(error).__name__} in the formula {source}"
            ) from error
        if match[2] == "[":
            return f'<div class="formula">{made}</div>'
        return f'<span class="long-formula">{made}</span>' if len(source) > 45 else made

    content = _ROLE.sub(lambda match: _reference(match, content), content)
    return _FORMULA.sub(render, content)


def _reference(match: re.Match[str], content: str) -> str:
    """Return a link in the place of a role in a docstring (``:func:`psofed.predict```), if the page has its target."""
    code = f"<code>{match[1].removeprefix('~')}</code>"
    return f'<a href="#{match[1]}">{code}</a>' if f'id="{match[1]}"' in content else code


def to_mathml(source: str, is_block: bool) -> str:
    r"""Return a formula as MathML that browsers draw: they know no alphabets, only letters.

    >>> "ℬ" in to_mathml(r"\mathcal B", is_block=False)
    True
    """
    # The converter knows aligned equations by another name.
    source = source.replace("{aligned}", "{align*}")
    made = convert(source, display="block" if is_block else "inline")
    if "<mi>&</mi>" in made or "<mi>\\" in made:
        raise ValueError("a command is not understood")

    def letter(match: re.Match[str]) -> str:
        name = f"MATHEMATICAL {match[1].upper()} CAPITAL {match[2]}"
        if match[1] == "script" and match[2] in "BEFHILMR":
            name = f"SCRIPT CAPITAL {match[2]}"
        return f"<mi>{unicodedata.lookup(name)}</mi>"

    return re.sub(r'<mi mathvariant="(script|bold)">([A-Z])</mi>', letter, made)
