"""Find the tests that should notice a change of a module, from package markers and imports of the test files."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = "tests/docs/test_documentation.py"
PAGES = f"{DOCUMENTS}::test_pages_made_from_code_are_up_to_date"  # with every option's default and range
KINDS = (
    "unit",
    "exactness",
    "conformance",
    "properties",
)  # quick and sharp; the other folders come after these


def tests_for(file: str) -> tuple[str, ...]:
    """Return pytest's arguments for a change of `file`, such as ``src/psofed/theory/lms.py``.

    These are the test files marked with the module's package. Those that import the module come first, then those that
    import its folder or a name the module is part of, then the others; each group with quick files and `KINDS` first.
    """
    module = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package = module.split(".")[1]
    ranked = sorted((_rank(module, test), test) for test in _test_files() if package in _markers(test))
    tests = tuple(test for _, test in ranked)
    if package == "federation":  # its documents are tested among its own tests
        return tests
    examples = f"{DOCUMENTS}::test_docstring_examples_hold[{module}]"
    return (examples, PAGES, *tests) if package == "parts" else (examples, *tests)


@cache
def _test_files() -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py")))


def _rank(module: str, test: str) -> tuple[int, float, int]:
    """Distance between module and test's imports, the time the test file takes, and its kind."""
    shared = max((_common(module, imported) for imported in _imports(test)), default=0)
    kind = test.split("/")[1]
    return -shared, _seconds(test), KINDS.index(kind) if kind in KINDS else len(KINDS)


def _common(module: str, imported: str) -> int:
    """Count the leading names that two dotted names share, beyond the package."""
    count = 0
    for ours, theirs in zip(module.split("."), imported.split("."), strict=False):
        if ours != theirs:
            break
        count += 1
    return max(count - 2, 0)


@cache
def _tree(test: str) -> ast.Module:
    return ast.parse((ROOT / test).read_text(encoding="utf-8"))


@cache
def _imports(test: str) -> frozenset[str]:
    """Return the modules of psofed that a test file imports, with the names taken from each."""
    names = set()
    for node in ast.walk(_tree(test)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in names if name.split(".")[0] == "psofed")


@cache
def _marks(test: str) -> tuple[ast.AST, ...]:
    """Return the nodes of a test file's `pytestmark = …`."""
    assigned = (node for node in _tree(test).body if isinstance(node, ast.Assign))
    marks = (node for node in assigned if ast.unparse(node.targets[0]) == "pytestmark")
    return tuple(node for mark in marks for node in ast.walk(mark))


def _markers(test: str) -> set[str]:
    return {node.attr for node in _marks(test) if isinstance(node, ast.Attribute)}


def _seconds(test: str) -> float:
    """Return the argument of the marker `takes`, or 0."""
    calls = (node for node in _marks(test) if isinstance(node, ast.Call))
    takes = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "takes")
    return max((float(ast.literal_eval(call.args[0])) for call in takes), default=0.0)
