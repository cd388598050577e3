"""Write the Python reference from the docstrings: an index, and a page for each object that a user meets.

A docstring in NumPy's style becomes Markdown that reads the same in the repository and on the site. What several
functions or results share stands once.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import psofed
from psofed.parts import contexts
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES, built_in_parts

# Values that stand on the page of what returns or takes them, and settings, which have a page of their own.
ON_PAGE = {"Difference": "difference", "LearningCurve": "Prediction", "Terms": "Prediction", "TrialState": "Metric"}
SETTINGS = {"Scenario": "scenario", "Selection": "selection-selection", "Data": "data-data", "Links": "links-channel"}
SETTINGS["Uniform"] = SETTINGS["Data"]
RESULTS = ("Prediction",)  # made by functions, with arguments of no concern to a reader
OTHERS = ("sklearn.FederatedRegressor", "simulation.online.RowFederation")
INDEX_ONLY = ("Selection", "Data", "Links", "Uniform", "Fleet")
# Members that serve the package more than its users.
ASIDE = re.findall(
    r"\w+",
    """solver model metrics steady_state worst_network_mse who_attacks arrays summary titles names defence_names labels
    margin digest source epochs num_columns samples_from describe mean_stepsize draw_stepsizes clipped table trials
    input_dimension client_names is_linear attacks most_uploads parts common_stepsize standard_errors tolerances check
    version named basis expected_participants most_at_once test_noise_variance client_updates_per_second settings
    unsteady_metrics tail_change bin_width own_data memory_size initial_memory iterations_per_false_alarm iterations
    diverged_trials""",
)
# Where several functions take an argument, the first of these says what it means.
FIRST = ("simulate", "predict", "read_data", "sweep")
# Fields that many arguments of parts' methods have; the guide explains them.
FIELDS = re.findall(
    r"\w+", "client iteration stepsize server entries normals uniforms client_uniform scratch group byzantine"
)
# What results have in common.
EVERY_RESULT = {
    "report()": "headline, tables, charts and notes, as a value; `print(result)` shows it",
    "chart()": "the picture as a value; `plot()` draws it",
    "to_json()": "plain dicts and lists; values that are not finite become None",
    "to_dataframe()": "a table; a result with several takes the table's name",
    "to_dataset()": "a labelled xarray data set, with the settings in its attributes",
    "save(path)": "a file that `psofed.load_result` reads",
}
_SECTIONS = "Parameters|Returns|Yields|Raises|Attributes|Notes|Warnings|References|Examples|See Also"
_TITLE = re.compile(rf"^({_SECTIONS})\n-+$", flags=re.M)
_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):`~?([^`]+)`")


def api_pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    values = {name: getattr(psofed, name) for name in sorted(set(psofed.__all__) - {"__version__"})}
    values = {name: value for name, value in values.items() if not inspect.ismodule(value)}
    for name in OTHERS:
        module, _, inner = name.rpartition(".")
        values[inner] = getattr(importlib.import_module(f"psofed.{module}"), inner)
    groups: dict[str, list[str]] = {"Functions": [], "Values and results": [], "Families of parts": [], "Errors": []}
    texts: dict[str, list[str]] = {}
    known: dict[str, str] = {}
    for name in sorted(values, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        if name not in ON_PAGE and not _is_error(values[name]) and name not in INDEX_ONLY:
            texts[name] = [f"# {name}", *describe_object(name, values[name], known)]
    for name, page in ON_PAGE.items():
        if f"## {name}" not in texts[page]:
            texts[page] += ["", f"## {name}", *describe_object(name, values[name], known)]
    for name, value in values.items():
        kind = "Functions"
        if inspect.isclass(value):
            is_part = issubclass(value, Part)
            kind = "Families of parts" if is_part else "Errors" if _is_error(value) else "Values and results"
        link = f"{name}.md" if name in texts else f"{ON_PAGE[name]}.md#{name.lower()}" if name in ON_PAGE else ""
        if not link and name in SETTINGS:
            link = f"../settings.md#{SETTINGS[name]}"
        shown = f"[{name}]({link})" if link else f"`{name}`"
        groups[kind].append(f"- {shown}: {_summary(value)}" if kind in ("Functions", "Errors") else shown)
    lines = [
        "# Python reference",
        "",
        "What `import psofed` gives; made by `make docs`. `help(psofed.simulate)` has more, and an example.",
    ]
    for title, entries in groups.items():
        is_list = entries[0].startswith("- ")
        lines += ["", f"## {title}", "", *(entries if is_list else [f"{', '.join(entries)}."])]
    lines += ["", "## Every result", "", *(f"- `{call}`: {meaning}" for call, meaning in EVERY_RESULT.items())]
    return {f"{name}.md": _joined(text) for name, text in [("index", lines), *texts.items()]}


def describe_object(name: str, value: Any, known: dict[str, str]) -> list[str]:
    """Return the lines on a public object: how it is called, its docstring, its members.

    `known` has the arguments that other pages explain, by their text, and is added to.
    """
    docstring = inspect.getdoc(value) or ""
    is_family = inspect.isclass(value) and issubclass(value, Part)
    if name in SETTINGS or name in RESULTS or is_family:
        docstring = re.sub(r"\nParameters\n-+\n.*?(?=\n\n\S[^\n]*\n-{4,}|\Z)", "", docstring, flags=re.S)
    is_function = inspect.isfunction(value)
    defaults = {} if is_family or (inspect.isclass(value) and "\nParameters\n" not in docstring) else _defaults(value)
    lines = ["", *to_markdown(docstring, name, known if is_function else None, defaults, is_family)]
    if name in SETTINGS:
        lines += ["", f"[Settings](../settings.md#{SETTINGS[name]}) has the fields."]
    common = {call.partition("(")[0] for call in EVERY_RESULT} | {"plot"}
    names, shared = [], set()
    for member, inner in _members(value, overridden=_overridden(value) if is_family else None):
        call = "" if _is_property(inner) else f"({_arguments(getattr(value, member), is_method=True)})"
        if any(line.startswith("- ") and f"`{member}`" in line.partition(": ")[0] for line in lines):
            continue  # among the attributes
        if member in common and not is_family:
            shared.add(member)
        else:
            call = call.replace(", *args, **kwargs", "").replace(", *args", "").replace("*args, **kwargs", "…")
            names.append(f"- `{member}{call}`: {_summary(getattr(inner, 'func', inner))}")
    if names:
        lines += ["", "**Methods to write**" if is_family else "**Members**", "", *names]
    if shared:
        lines += ["", f"Also, as [every result](index.md#every-result): `{'`, `'.join(sorted(shared))}`."]
    for argument, context in vars(contexts).items() if is_family else ():  # what its methods are shown
        if hasattr(context, "_fields") and re.search(
            rf"\b({argument}\b|{argument.lower()}: Any)", inspect.getsource(value)
        ):
            shown = to_markdown(inspect.getdoc(context) or "")
            known_fields = [line for line in shown if set(re.findall(r"`(\w+)`", line.partition(":")[0])) & {*FIELDS}]
            lines += ["", f"## {argument}", "", *(line for line in shown if line not in known_fields)]
            if names := [name for line in known_fields for name in re.findall(r"`\w+`", line.partition(":")[0])]:
                lines += ["", f"And, [as usual](../write_a_part.md#what-each-family-needs), {', '.join(names)}."]
    return lines


def to_markdown(
    docstring: str,
    page: str = "",
    known: dict[str, str] | None = None,
    defaults: dict[str, str] | None = None,
    is_family: bool = False,
) -> list[str]:
    r"""Return a docstring as lines of Markdown; arguments that are `known` only name the page that explains them.

    >>> text = "Add.\n\nParameters\n----------\nx : int\n    A number."
    >>> print("\n".join(to_markdown(text)))
    Add.
    <BLANKLINE>
    - `x` (int): A number.
    """
    head, *pieces = _TITLE.split(docstring)
    lines = list(_prose(head))
    for title, body in zip(pieces[::2], pieces[1::2], strict=True):
        if title == "Examples" and known is not None:
            continue  # the guides show how functions are called, and `help()` does
        if title in ("Examples", "Notes", "Warnings", "References", "See Also"):
            lines += ["", *_prose(body)]
            continue
        entries, after, elsewhere = [], [], {}
        for block in re.split(r"\n(?=\S)", body.strip("\n")):
            entry = _entry(
                block, is_named=title in ("Parameters", "Attributes"), is_short=title == "Attributes" and not is_family
            )
            if entry is None:
                after.append(_inline(block))
                continue
            name, _, meaning = entry.partition(": ")
            if page and title == "Attributes" and {*re.findall(r"`(\w+)`", name)} <= {*ASIDE}:
                continue
            for argument, default in (defaults or {}).items():
                name = name.replace(f"`{argument}`", f"`{argument}={default}`")
            if known is not None and title == "Parameters" and known.setdefault(entry, page) != page:
                elsewhere.setdefault(known[entry], []).append(name[2:])
            else:
                shown = f"{name}: {meaning}" if meaning else name
                entries.append(f"Returns {shown[2:]}" if title == "Returns" else shown)
        entries += [f"- {', '.join(names)}: as in [{other}]({other}.md)" for other, names in elsewhere.items()]
        lines += ["", *entries, *(["", *after] if after else [])]
    return lines


def _entry(block: str, is_named: bool, is_short: bool) -> str | None:
    """Return an entry of a section as an item: a name with its type, or a type, then what it means."""
    head, _, body = block.partition("\n")
    meaning = " ".join(_inline(line.strip()) for line in body.splitlines() if line.strip())
    if not body and " " in head and not re.match(r"^[\w*, ]+ : ", head):
        return None
    name, _, kind = head.partition(" : ")
    shown = _inline(head)
    if is_short:
        meaning = _first_sentence(meaning)
    if is_named:
        shown = ", ".join(f"`{word.strip()}`" for word in name.split(","))
        if shape := re.search(r"\([^)]*\)", kind):  # of arrays; other types follow from the meaning
            shown += f" {_inline(shape[0])}"
    return f"- {shown}: {meaning}" if meaning else f"- {shown}"


def _summary(value: Any) -> str:
    return _first_sentence(_inline((inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")))


def _first_sentence(text: str) -> str:
    """Return what an index needs: `help()` has the rest."""
    if not text:
        return ""
    text = re.split(r"(?<=\w[.;)`])\s(?=[A-Z`])|; ", text.removeprefix("Return "))[0]
    is_word = re.match(r"[a-z]{2}", text)  # and no symbol
    return f"{text[0].upper() if is_word else text[:1]}{text[1:].rstrip('.')}."


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _joined(lines: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _defaults(value: Any) -> dict[str, str]:
    """Return the defaults of a call's arguments, as they are written."""
    parameters = inspect.signature(value).parameters
    return {name: repr(_Shown(p.default)) for name, p in parameters.items() if p.default is not p.empty}


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


def _overridden(family: type[Part]) -> set[str]:
    """Return the methods of a family that one of our own parts defines, or that have no body."""
    parts = [kind for name in FAMILIES for kind in built_in_parts(name) if issubclass(kind, family)]
    return {name for part in parts for kind in part.__mro__[: part.__mro__.index(family)] for name in vars(kind)}


def _members(value: Any, overridden: set[str] | None) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines itself, in the order of its source."""
    for member, inner in vars(value).items() if inspect.isclass(value) else ():
        is_method = inspect.isfunction(inner) or isinstance(inner, classmethod | staticmethod)
        is_wanted = not overridden or member in overridden or f"`{member}`" in (inspect.getdoc(value) or "")
        if not member.startswith("_") and member not in ASIDE and (is_method or _is_property(inner)) and is_wanted:
            yield member, inner


def _is_property(inner: Any) -> bool:
    return isinstance(inner, property) or type(inner).__name__ == "cached_property"


def _prose(text: str) -> Iterator[str]:
    """Yield the lines of paragraphs; what is indented or an example becomes code."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if ">>>" in paragraph:
            yield from ["", "```pycon", paragraph, "```"]
        elif paragraph and all(line.startswith("    ") for line in paragraph.splitlines()):
            yield from ["", "```", inspect.cleandoc(paragraph), "```"]
        else:
            yield from ["", *(_inline(line) for line in paragraph.splitlines())]


def _inline(text: str) -> str:
    """Return text with roles and double backquotes as code; what Markdown would read as markup is escaped."""
    pieces = _ROLE.sub(r"`\1`", text).replace("``", "`").split("`")
    pieces[::2] = [re.sub(r"([*_<|\[\]])", r"\\\1", piece) for piece in pieces[::2]]
    return re.sub(r"(?<!\w)\\\*(\w[\w ]*)\\\*", r"*\1*", "`".join(pieces))
