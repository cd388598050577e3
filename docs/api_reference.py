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


def describe_object(name: str, value: Any, fields: str | None = None) -> list[str]:
    """Return the lines of a public object: its heading, how it is called, its docstring, its members.

    Where another page describes the object's fields, `fields` is a link to it and stands in their place.
    """
    docstring = inspect.getdoc(value) or ""
    if fields is not None:
        docstring = re.sub(r"\nParameters\n-+\n.*?(?=\n\n\S[^\n]*\n-{4,}|\Z)", "", docstring, flags=re.S)
    lines = [f"# {name}", "", *_call(f"psofed.{name}", value), *to_markdown(docstring)]
    if fields is not None:
        lines += ["", f"[Settings]({fields}) describes the fields."]
    if members := _members(value):
        lines += ["", "## Members", "", "| name | meaning |", "|---|---|"]
    for member, inner in members:
        about = (inspect.getdoc(getattr(inner, "func", inner)) or "").split("\n\n")[0].replace("\n", " ")
        call = "" if _is_property(inner) else f"({_arguments(getattr(value, member), is_method=True)})"
        lines.append(f"| `{member}{call}` | {to_markdown(about)[0].replace('|', chr(92) + '|')} |")
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


def _call(name: str, value: Any) -> list[str]:
    """Return how an object is called: names and defaults. Types are in the docstring."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return []
    try:
        arguments = _arguments(value)
    except (TypeError, ValueError):
        return []
    if len(name) + len(arguments) > 90:
        arguments = "\n    " + arguments.replace(", ", ",\n    ") + ",\n"
    return ["```py", f"{name}({arguments})", "```", ""]


def _arguments(value: Any, is_method: bool = False) -> str:
    """Return the names and defaults of a call's arguments."""
    parameters = inspect.signature(value).parameters.values()
    plain = [
        p.replace(annotation=p.empty, default=p.default if p.default is p.empty else _Shown(p.default))
        for p in parameters
        if not (is_method and p.name == "self")
    ]
    return str(inspect.Signature(plain))[1:-1]


class _Shown:
    """A default, shown as it is written, or as … if its text is no Python."""

    def __init__(self, value: Any) -> None:
        self.text = repr(value)

    def __repr__(self) -> str:
        return "…" if self.text.startswith("<") else self.text


def _members(value: Any) -> list[tuple[str, Any]]:
    """Return the public methods and properties that a class defines itself, in the order of its source."""
    if not inspect.isclass(value) or issubclass(value, Exception):
        return []
    return [
        (member, inner)
        for member, inner in vars(value).items()
        if not member.startswith("_")
        and (inspect.isfunction(inner) or isinstance(inner, classmethod | staticmethod) or _is_property(inner))
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
