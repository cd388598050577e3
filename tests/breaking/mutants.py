"""Small changes of a module's code that a test should notice: comparisons, arithmetic, constants, conditions.

Mutmut and cosmic-ray start a process for every mutant, which here costs more than the tests, and know nothing of
compiled kernels that lie on disk; so this is a mutator of our own, of one page.
"""

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.In: ("in", "not in"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: in which file and line, and both forms of that line."""

    file: str
    line: int
    column: int
    old: str
    new: str

    @property
    def package(self) -> str:
        """The package of the file, such as ``theory``."""
        return self.file.removeprefix("src/psofed/").split("/")[0]

    def apply(self, text: str) -> str:
        """Return the module's text with this change."""
        lines = text.splitlines(keepends=True)
        assert lines[self.line - 1].strip() == self.old
        indent = lines[self.line - 1][: -len(lines[self.line - 1].lstrip())]
        lines[self.line - 1] = f"{indent}{self.new}\n"
        return "".join(lines)


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """Return all changes of a module that this mutator knows, in order."""
    text = (root / file).read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    for line, begin, end, replacement in _changes(ast.parse(text), lines):
        old = lines[line - 1]
        # ast counts bytes, and there are Greek letters in the code.
        head, tail = old.encode()[:begin].decode(), old.encode()[end:].decode()
        mutant = Mutant(file, line, begin, old.strip(), (head + replacement + tail).strip())
        found[line, begin, mutant.new] = mutant
    return [found[place] for place in sorted(found)]


def sample(root: Path, files: list[str], each: int, seed: int) -> list[Mutant]:
    """Return `each` changes of every file, drawn by `seed` and the file's name alone; fewer where there are fewer."""
    chosen = []
    for file in files:
        known = mutants_of(root, file)
        random.Random(f"{seed} {file}").shuffle(known)
        chosen += known[:each]
    return chosen


def draw(root: Path, files: list[str], count: int, seed: str) -> list[Mutant]:
    """Return `count` of all changes of these files, each as likely as any other."""
    known = [mutant for file in files for mutant in mutants_of(root, file)]
    random.Random(seed).shuffle(known)
    return known[:count]


def _changes(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield line, first and last byte of what is replaced, and what by."""
    for node in _code(tree):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from _operator(lines, left, operator, right)
            case ast.BinOp(left=left, op=operator, right=right):
                yield from _operator(lines, left, operator, right)
            case ast.BoolOp(op=operator, values=[left, right]):
                yield from _operator(lines, left, operator, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand) if node.lineno == operand.lineno:
                yield node.lineno, node.col_offset, operand.col_offset, ""
            case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in OPERATORS:
                old, new = OPERATORS[type(operator)]
                yield from _between(lines, target, value, f"{old}=", f"{new}=")
            case ast.Constant(value=bool() as value):
                yield *_place(node), str(not value)
            case ast.Constant(value=int() as value):
                yield *_place(node), str(value + 1)
            case ast.Constant(value=float() as value):
                yield *_place(node), repr(1.0 if value == 0.0 else 1.25 * value)


def _place(node: ast.expr) -> tuple[int, int, int]:
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_col_offset


def _operator(lines: list[str], left: ast.expr, operator: ast.AST, right: ast.expr) -> Iterator[tuple]:
    if type(operator) in OPERATORS:
        yield from _between(lines, left, right, *OPERATORS[type(operator)])


def _between(lines: list[str], left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[tuple]:
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return
    gap = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
    place = gap.find(old)
    if place >= 0:
        begin = left.end_col_offset + len(gap[:place].encode())
        yield right.lineno, begin, begin + len(old), new


# What is never changed: annotations, decorators, messages, what only type checkers read.
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, _SKIPPED) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child)
