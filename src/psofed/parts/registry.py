"""Find parts by name: built-in parts, parts of installed packages, and parts in the user's modules.

A built-in part is a class in a file of its family's folder, such as ``parts/attacks/by_value.py``; a new file is found
like the others. Kinds are read from the sources, so that listing them imports nothing. A user's class is registered
when it is defined. An installed package names a module with parts in the entry-point group ``psofed.parts``.
"""

import importlib
import importlib.util
import os
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from psofed.common.errors import PsofedError
from psofed.common.suggest import did_you_mean
from psofed.common.validation import check_choice
from psofed.parts.part import Part, kebab_case

_NAMES = (
    "attack", "aggregation", "defence", "pre_aggregation", "pattern", "drift", "learner", "stream", "model", "function",
    "algorithm", "availability", "channel", "delay",
)  # fmt: skip

# Families of parts, and the folder that their built-in ones stand in.
FAMILIES = {name: f"{name}s" for name in _NAMES} | {"availability": "availabilities"}

# Metrics are parts of a run, not of a scenario.
_FOLDERS = FAMILIES | {"metric": "metrics"}

# A class of a built-in part, and a kind that does not follow from its name.
_DECLARED = re.compile(r'^class ([A-Z]\w*)\(|^    kind\b.* = "(.+)"', re.MULTILINE)

# Names the plugins to processes that this one starts.
PLUGINS_VARIABLE = "PSOFED_PLUGINS"

_PACKAGE = __name__.rpartition(".")[0]
_REGISTERED: dict[tuple[str, str], type[Part]] = {}


def part_names(family: str) -> tuple[str, ...]:
    """Return the names of all parts of one `family`, in alphabetical order.

    Examples
    --------
    >>> part_names("pattern")
    ('random', 'round-robin')
    """
    _load_named_modules()
    own = {kind for registered, kind in _REGISTERED if registered == family}
    return tuple(sorted({*_built_in(family), *own}))


def find_part(family: str, kind: Any, field: str | None = None) -> Any:
    """Return the class of a part.

    Parameters
    ----------
    family, kind : str
        What to find.
    field : str, optional
        What to call it in an error; the family by default.

    Examples
    --------
    >>> find_part("pattern", "round-robin")
    <class 'psofed.parts.patterns.built_in.RoundRobin'>
    """
    if not isinstance(kind, str) or ((family, kind) not in _REGISTERED and kind not in _built_in(family)):
        check_choice(field or family, kind, part_names(family))  # also looks into installed packages
    if (family, kind) not in _REGISTERED:
        importlib.import_module(_built_in(family)[kind][0])
    return _REGISTERED[family, kind]


def register(part: type[Part]) -> None:
    """Register a class under its kind; called for every part when its class is defined."""
    key = part.family, part.kind
    known = _REGISTERED.get(key)
    same = known is not None and (known.__module__, known.__qualname__) == (part.__module__, part.__qualname__)
    if (known is not None and not same) or (part.kind in _built_in(part.family) and not _is_built_in(part)):
        owner = f"{known.__module__}.{known.__qualname__}" if known is not None else "built in"
        raise PsofedError(
            f'{part.__module__}.{part.__qualname__}: the {part.family} "{part.kind}" already exists ({owner}); '
            "rename the class or set another `kind`"
        )
    part.check_methods()
    _REGISTERED[key] = part


def load_plugin(source: str | Path) -> ModuleType:
    """Import a module that defines parts: a ``.py`` file, or the name of a module.

    It can then be named in scenarios, and travels to worker processes and Dask clusters.

    Parameters
    ----------
    source : str or path
        ``my_parts.py``, or ``my_package.parts``.

    Examples
    --------
    A module by its name; ``load_plugin("my_parts.py")`` takes a file in the same way.

    >>> load_plugin("psofed.parts.attacks.by_value").Gaussian.kind
    'gaussian'
    """
    text = str(source)
    if text.endswith(".py"):
        text = str(Path(source).resolve())
        module = _load_file(Path(source))
    else:
        try:
            module = importlib.import_module(text)
        except ImportError as error:
            raise PsofedError(f"{text}: cannot be imported ({error})") from None
    named = list(filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)))
    if text not in named:
        os.environ[PLUGINS_VARIABLE] = os.pathsep.join([*named, text])
    return module


def plugin_of(part: Part) -> str | None:
    """Return the module that defines a user's part, if it can be imported by name."""
    module = type(part).__module__
    return None if module == "__main__" or _is_built_in(type(part)) else module


def plugin_files() -> list[str]:
    """Return the files of modules with user-defined parts, for clusters where they are not installed."""
    modules = {part.__module__ for part in _REGISTERED.values() if not _is_built_in(part)} - {"__main__"}
    files = (getattr(sys.modules.get(module), "__file__", None) for module in sorted(modules) if "." not in module)
    return [str(file) for file in files if file]


def class_in(family: str, name: str) -> type[Part]:
    """Return a built-in part by the name of its class, for ``psofed.attacks.Gaussian``."""
    for kind, (_, known) in _built_in(family).items():
        if known == name:
            return cast("type[Part]", find_part(family, kind))
    hint = "" if name.startswith("_") else did_you_mean(name, class_names(family))
    raise AttributeError(f"module 'psofed.{FAMILIES[family]}' has no attribute {name!r}.{hint}")


def built_in_parts(family: str) -> list[Any]:
    """Return the classes of a family's built-in parts."""
    return [find_part(family, kind) for kind in _built_in(family)]


def class_names(family: str) -> list[str]:
    """Return the names of the classes of a family's built-in parts."""
    return [name for _, name in _built_in(family).values()]


@cache
def _built_in(family: str) -> dict[str, tuple[str, str]]:
    """Return module and class of a family's built-in parts by kind, in alphabetical order."""
    parts: dict[str, tuple[str, str]] = {}
    for path in (Path(__file__).parent / _FOLDERS[family]).glob("*.py"):
        kinds, last = {}, ""
        for name, kind in _DECLARED.findall(path.read_text("utf-8")):
            last = name or last
            kinds[last] = kind or kebab_case(last)
        parts |= {kind: (f"{_PACKAGE}.{_FOLDERS[family]}.{path.stem}", name) for name, kind in kinds.items()}
    return dict(sorted(parts.items()))


def _is_built_in(part: type[Part]) -> bool:
    return part.__module__.startswith(f"{_PACKAGE}.")


@cache
def _load_named_modules() -> None:
    """Load parts of installed packages, and the plugins of the parent process."""
    from importlib.metadata import entry_points

    for plugin in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        load_plugin(plugin)
    for entry in entry_points(group="psofed.parts"):
        try:
            entry.load()
        except Exception as error:
            raise PsofedError(f"cannot load the parts of the installed package {entry.value}: {error}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PsofedError(f"{path}: no such file")
    name, folder = path.stem, str(path.resolve().parent)
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) and Path(str(known.__file__)).resolve() == path.resolve():
            return known
        raise PsofedError(f"{path}: a module named {name} is already loaded; rename the file")
    # On the path, so that worker processes find it under the same name.
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        if isinstance(error, PsofedError):
            raise error.at(str(path)) from error
        raise PsofedError(f"{path}: {type(error).__name__}: {error}") from error
    return module
