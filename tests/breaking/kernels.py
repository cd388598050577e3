"""Which compiled kernels a run may take from disk: those that the broken file has no part in.

psofed itself keeps them in a folder named after the whole engine's code, so that any change of it compiles everything
again. Here that would be most of the time. A kernel depends on the names it uses, on those that they use, and so on;
nothing else can get into it.
"""

import ast
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

# What the body of a part is compiled with, besides the frame around it.
_AROUND_BODIES = ("psofed.engine.bodies", "psofed.engine.vocabulary", "psofed.engine.lanes")
ALL = "*"


def use_kernels(source: Path, folder: Path, broken: str, line: int) -> None:
    """Set psofed's cache up, in a process that has not imported it yet; what broken code compiles is thrown away."""
    cache_folder, name = folder / "cache", folder / "unbroken"
    if broken:
        shutil.rmtree(folder / "broken", ignore_errors=True)
        if cache_folder.exists():
            shutil.copytree(cache_folder, folder / "broken", copy_function=_link)
        cache_folder = folder / "broken"
    os.environ["XDG_CACHE_HOME"] = str(cache_folder)
    if broken and (not broken.startswith("src/psofed/engine/") or broken.endswith("/compiling.py")):
        return
    try:
        from psofed.engine import compiling
    except Exception:  # that is for the tests to find
        return
    changed = compiling._folder_name()
    if not broken:
        name.write_text(changed, encoding="utf-8")
    elif name.exists():
        unbroken, names = name.read_text(encoding="utf-8"), _broken_names(source, broken, line)

        def kernels_folder() -> Path:
            roots = _roots()
            known = roots and all(_definitions(source, module) for module, _ in roots)
            untouched = known and names.isdisjoint(_dependencies(source, roots))
            return cache_folder / "psofed" / (unbroken if untouched else changed)

        kernels_folder.__wrapped__ = compiling._cache_folder.__wrapped__  # as a test calls it
        compiling._cache_folder = kernels_folder


def _link(original: str, copy: str) -> None:
    # Numba replaces files and never writes into them, so the original stays.
    try:
        os.link(original, copy)
    except OSError:
        shutil.copy2(original, copy)


def _roots() -> "tuple[Symbol, ...]":
    """What is being compiled; nothing if that is not known."""
    frame: Any = sys._getframe()
    while frame is not None:
        values = frame.f_locals
        if frame.f_code.co_name == "_compiled_hook":
            make_frame = values["make_frame"]
            around = [(module, ALL) for module in _AROUND_BODIES]
            return ((make_frame.__module__, make_frame.__qualname__.split(".")[0]), *around)
        if frame.f_code.co_name == "_compile" and "allocates" in values:
            function = values["function"]
            return ((function.__module__, function.__qualname__.split(".")[0]),)
        frame = frame.f_back
    return ()


Symbol = tuple[str, str]
"""A module and a name that it defines at its top level."""


@cache
def _dependencies(source: Path, roots: tuple[Symbol, ...]) -> frozenset[Symbol]:
    """What these use of psofed, directly or not, and they themselves."""
    found: set[Symbol] = set()
    waiting = list(roots)
    while waiting:
        module, name = waiting.pop()
        if (module, name) in found or (known := _definitions(source, module)) is None:
            continue
        found.add((module, name))
        defined, imported = known
        names = {*defined, *imported} if name == ALL else defined.get(name, set())
        for used in names:
            if used in defined:
                waiting.append((module, used))
            if used in imported:
                waiting += imported[used]
    return frozenset(found)


@cache
def _definitions(source: Path, module: str) -> tuple[dict[str, set[str]], dict[str, list[Symbol]]] | None:
    """For each name of a module's top level the names it uses; and what the imported names stand for."""
    path = source.joinpath(*module.split("."))
    file = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)
    if file is None:
        return None
    defined: dict[str, set[str]] = {}
    imported: dict[str, list[Symbol]] = {}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = (alias.asname or alias.name).split(".")[0]
                whole = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
                imported.setdefault(name, []).append((whole, ALL))
                if isinstance(node, ast.ImportFrom):
                    imported[name].append((str(node.module), alias.name))
    for statement in tree.body:
        used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for name in _names_of(statement):
            defined.setdefault(name, set()).update(used)
    return defined, imported


def _names_of(statement: ast.stmt) -> set[str]:
    """What a statement at the top level of a module defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _broken_names(source: Path, broken: str, line: int) -> set[Symbol]:
    """What a change of this line changes."""
    module = ".".join(Path(broken).with_suffix("").parts[1:]).removesuffix(".__init__")
    tree = ast.parse((source.parent / broken).read_text(encoding="utf-8"))
    names = {
        name
        for statement in tree.body
        if statement.lineno <= line <= (statement.end_lineno or line)
        for name in _names_of(statement)
    }
    if names:
        return {(module, name) for name in names}
    every = _definitions(source, module)
    return {(module, name) for name in (every[0] if every else ())}
