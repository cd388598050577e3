"""Adapt pages for the site that are also read in the repository.

- Links that leave docs/ (to source files, examples, the licence) lead to the repository if its address is known
  (``PSOFED_REPO_URL``), and are plain text otherwise.
- The playground's tables are computed, and tutorials are offered as notebooks.
- Pictures lead to themselves in full size.
- Paths in tables may break after a slash; options such as ``--home`` and "12 %" do not break at all.
- Pages of the Python reference lead back to its index and to what a function returns.
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

from notebooks import LESSONS, notebooks
from playground_tables import script

MADE = ("cli.md", "parts.md", "settings.md")  # by make_pages.py, like api/
# How much a page counts in the search: explanations before lists of names.
BOOST = {
    "index.md": 3.0,
    "glossary.md": 2.0,
    **dict.fromkeys(
        ("tune.md", "own_data.md", "fleet_operator.md", "node_operator.md", "sklearn.md", "write_a_part.md"), 1.8
    ),
    **dict.fromkeys(("algorithms.md", "comparison.md", "sweep.md", "attacks.md"), 2.5),
    **dict.fromkeys(("wire.md", "architecture.md"), 0.5),
    **dict.fromkeys(MADE, 0.4),
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)[^)\s]*)\)")
_PICTURE = re.compile(r'(?<=<p>)(<img [^>]*?src="([^"]+\.(?:png|svg))"[^>]*>)(?=</p>)')
_CELL, _PATH = re.compile(r"<td\b.*?</td>", flags=re.S), re.compile(r"(?<=[>\w/])(\w+)/(?=\w+[\w/]*\.py)")
_BLOCK, _CODE = re.compile(r"(<pre\b.*?</pre>)", flags=re.S), re.compile(r"<code>[^<]*</code>")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.S)


def on_config(config: Any) -> Any:
    """Leave out edit links where nobody has said where the repository is."""
    if not config.repo_url:
        config.edit_uri = None
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the playground's tables and the notebooks; pages made from code are edited where they are made."""
    files.append(File.generated(config, "assets/playground_data.js", content=script()))
    for name, lesson in notebooks().items():
        files.append(File.generated(config, f"notebooks/{name}", content=lesson))
    for file in files:
        if file.src_uri in MADE or file.src_uri.startswith("api/"):
            file.edit_uri = "make_pages.py"
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, **_: Any) -> str:
    """Lead links that leave docs/ to the repository, or nowhere; offer lessons as notebooks; weigh the page."""
    if page.file.src_uri.startswith("api/") and page.file.src_uri != "api/index.md":
        folder = Path(config.docs_dir, "api")
        returned = re.search(r"^Returns (\w+):", markdown, flags=re.M)
        if returned and (folder / f"{returned[1]}.md").exists():
            markdown = markdown.replace(returned[0], f"Returns [{returned[1]}]({returned[1]}.md):")
        markdown = f"[Python reference](index.md)\n\n{markdown}"
    page.meta.setdefault(
        "search", {"boost": BOOST.get(page.file.src_uri, 0.3 if page.file.src_uri.startswith("api/") else 1.0)}
    )
    for name, lesson in LESSONS.items():
        if page.file.src_uri == lesson:
            offer = f"[Download this page as a notebook](notebooks/{name}.ipynb){{ download }}"
            markdown = re.sub(r"^(# .*)$", rf"\1\n\n{offer}", markdown, count=1, flags=re.M)

    def lead(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match[2]))
        if path.startswith("docs/"):
            return match[0]
        return f"[{match[1]}]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else match[1]

    return _LINK.sub(lead, markdown)


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Say what a link to the page shows where it is shared: title, description and picture."""
    picture = page.url.count("/") * "../" + "images/playground.png"
    tags = {
        "og:title": str(page.title),
        "og:description": page.meta.get("description") or config.site_description or config.site_name,
        "og:image": posixpath.join(config.site_url, "images/playground.png") if config.site_url else picture,
    }
    made = "".join(f'<meta property="{name}" content="{html.escape(text)}">' for name, text in tags.items())
    return output.replace("</head>", f'{made}<meta name="twitter:card" content="summary_large_image"></head>', 1)


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Link pictures to their full size and turn formulas into MathML; one that is not understood fails the build."""
    content = _PICTURE.sub(r'<a class="full-size" href="\2">\1</a>', content)
    content = _CELL.sub(lambda cell: _PATH.sub(r"\1/<wbr>", cell[0]), content)
    content = "".join(text if text.startswith("<pre") else _kept_together(text) for text in _BLOCK.split(content))

    def render(match: re.Match[str]) -> str:
        source = html.unescape(match[3]).strip()
        try:
            made = to_mathml(source, is_block=match[2] == "[")
        except Exception as error:
            raise ValueError(f"{page.file.src_uri}: {type(error).__name__} in the formula {source}") from error
        if match[2] == "[":
            return f'<div class="formula">{made}</div>'
        return f'<span class="long-formula">{made}</span>' if len(source) > 45 else made

    return _FORMULA.sub(render, content)


def _kept_together(text: str) -> str:
    r"""Keep lines from breaking within an option or between a number and its unit.

    >>> _kept_together("<p>12 % with <code>run --home fed</code></p>")
    '<p>12\xa0% with <code>run <span class="option">--home</span> fed</code></p>'
    """
    text = _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\1</span>', code[0]), text)
    return re.sub(r"(?<=\d) (?=(?:%|dB|MB|ms|s)(?!\w))", "\N{NO-BREAK SPACE}", text)


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
