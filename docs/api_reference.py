"""Turn docstrings in NumPy's style into Markdown that reads the same in the repository and on the site."""

import inspect
import re
from typing import Any

SECTIONS = (
    "Parameters",
    "Returns",
    "Yields",
    "Raises",
    "Attributes",
    "Notes",
    "Warnings",
    "References",
    "Examples",
    "See Also",
)
_TITLE = re.compile(rf"^({'|'.join(SECTIONS)})\n-+$", flags=re.M)
_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):`~?([^`]+)`")


def describe_object(name: str, value: Any) -> list[str]:
    """Return the lines of a public object: its heading, how it is called, its docstring, its members."""
    lines = [f"### {name}", "", *_call(f"psofed.{name}", value), *to_markdown(inspect.getdoc(value) or "")]
    for member, inner in _members(value):
        lines += ["", f"#### {name}.{member}", ""]
        if not _is_property(inner):
            lines += _call(member, getattr(value, member), is_method=True)
        lines += to_markdown(inspect.getdoc(getattr(inner, "func", inner)) or "")
    return lines


def to_markdown(docstring: str) -> list[str]:
    r"""Return a docstring as lines of Markdown.

    >>> text = "Add.\n\nParameters\n----------\nx : int\n    A number."
    >>> print("\n".join(to_markdown(text)))
    Add.
    <BLANKLINE>
    **Parameters**
    <BLANKLINE>
    - `x` (int): A number.
    """
    head, *pieces = _TITLE.split(docstring)
    lines = _prose(head)
    for title, body in zip(pieces[::2], pieces[1::2], strict=True):
        lines += ["", f"**{title}**", ""]
        if title == "Examples":
            lines += _examples(body)
        elif title in ("Notes", "Warnings", "References", "See Also"):
            lines += _prose(body)
        else:
            lines += _entries(body, named=title in ("Parameters", "Attributes"))
    return lines


def _call(name: str, value: Any, is_method: bool = False) -> list[str]:
    """Return how an object is called: names and defaults. Types are in the docstring."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return []
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return []
    shown, keyword_only = [], False
    for parameter in (
        parameters[1:] if is_method and parameters and parameters[0].name == "self" else parameters
    ):
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            shown.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        keyword_only |= star == "*"
        default = "" if parameter.default is parameter.empty else f"={_default(parameter.default)}"
        shown.append(f"{star}{parameter.name}{default}")
    one_line = f"{name}({', '.join(shown)})"
    if len(one_line) > 90:
        one_line = f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + ")"
    return ["```py", one_line, "```", ""]


def _default(value: Any) -> str:
    shown = repr(value)
    return "…" if shown.startswith("<") else shown


def _members(value: Any) -> list[tuple[str, Any]]:
    """Return the public methods and properties that a class defines itself, in the order of its source."""
    if not inspect.isclass(value) or issubclass(value, Exception):
        return []
    return [
        (member, inner)
        for member, inner in vars(value).items()
        if not member.startswith("_")
        and (
            inspect.isfunction(inner) or isinstance(inner, classmethod | staticmethod) or _is_property(inner)
        )
        and inspect.getdoc(getattr(inner, "func", inner))
    ]


def _is_property(inner: Any) -> bool:
    return isinstance(inner, property) or type(inner).__name__ == "cached_property"


def _prose(text: str) -> list[str]:
    """Return paragraphs; what is indented or an example becomes code."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if not paragraph.strip():
            continue
        if lines:
            lines.append("")
        if paragraph.startswith(">>>"):
            lines += ["```pycon", paragraph, "```"]
        elif all(line.startswith("    ") for line in paragraph.splitlines()):
            lines += ["```", inspect.cleandoc(paragraph), "```"]
        else:
            lines += [_inline(line) for line in paragraph.splitlines()]
    return lines


def _examples(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if lines:
            lines.append("")
        lines += ["```pycon", paragraph, "```"] if ">>>" in paragraph else [_inline(paragraph)]
    return lines


def _entries(text: str, named: bool) -> list[str]:
    """Return the entries of a section as a list: a name with its type, or a type, then what it means."""
    lines: list[str] = []
    after: list[str] = []
    for block in re.split(r"\n(?=\S)", text.strip("\n")):
        head, _, body = block.partition("\n")
        meaning = " ".join(_inline(line.strip()) for line in body.splitlines() if line.strip())
        if not body and " " in head and not re.match(r"^[\w*, ]+ : ", head):
            after += ["", _inline(head)] if not after or lines else [_inline(head)]
            continue
        name, _, kind = head.partition(" : ")
        if named:
            words = ", ".join(f"`{word.strip()}`" for word in name.split(","))
            shown = f"{words} ({_inline(kind)})" if kind else words
        else:
            shown = _inline(head)
        lines.append(f"- {shown}: {meaning}" if meaning else f"- {shown}")
    return lines + after


def _inline(text: str) -> str:
    """Return text with roles and double backquotes as code; what Markdown would read as markup is escaped."""
    text = _ROLE.sub(r"`\1`", text).replace("``", "`")
    pieces = text.split("`")
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"([*_<|\[\]])", r"\\\1", pieces[i])
    return "`".join(pieces)
