"""Turn a part's method into a stage that kernels call: compiled, or in Python where Numba cannot compile it.

A method's stage (:mod:`psofed.engine.tables`) is a *frame*, a function that loops over trials and clients, with the
part's own method: ``frame(method, n, k, g, table)`` calls ``method(options, memory, seen, *out)``, where the method
takes its ``memory`` only if it has such an argument. Kernels therefore are compiled once for all parts.

Frames and methods are plain functions that can be imported by name, since Numba's cache on disk knows those again in
another process.
"""

import ctypes
import dataclasses
import dis
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numba
import numpy as np
from numba.extending import register_jitable

import psofed.engine.vocabulary  # noqa: F401 (teaches Numba the words of psofed.parts.vectors)
from psofed.common.errors import PsofedError
from psofed.common.fingerprint import function_digest
from psofed.common.notices import notify
from psofed.common.options import option_of, value_type
from psofed.common.types import FloatArray
from psofed.engine.compiling import own_cache
from psofed.engine.tables import STAGE, KernelTable, TableType, compile_stage
from psofed.parts import vectors
from psofed.parts.part import Part, takes_memory

Method = Callable[..., Any]

# Loops around a part's method: (method, n, k, g, table).
Frame = Callable[[Method, int, int, int, Any], None]

# Parts whose methods run as plain Python, since Numba could not compile them, and why; by class.
RUN_AS_PYTHON: dict[type[Part], str] = {}

_COMPILING = threading.RLock()


class Hooks:
    """The methods of parts that a run calls, and the errors of those that run as Python; they live as long as this."""

    def __init__(self) -> None:
        self._callbacks: list[Any] = []
        self._errors: list[BaseException] = []

    def add(self, part: Part, name: str, frame: Frame, table: Any) -> int:
        """Return the address of a part's method with its frame, which takes such tables as `table`."""
        address = _compiled_address(part, name, frame, KernelTable(table).kind)
        if address is None:
            method = _python_method(part, name)

            def call(n: int, k: int, g: int, table_address: int) -> None:
                if not self._errors:
                    try:
                        frame(method, n, k, g, KernelTable.values_at(table_address))
                    except BaseException as error:
                        self._errors.append(error)

            callback = STAGE(call)
            self._callbacks.append(callback)
            address = ctypes.cast(callback, ctypes.c_void_p).value
        assert address is not None
        return address

    def check(self) -> None:
        """Raise the first error of a Python method, if there was one."""
        if self._errors:
            raise explained(self._errors[0])


def run_method(part: Part, name: str, frame: Frame, n: int = 0, **fields: Any) -> None:
    """Call a part's method with its frame once, for iteration n and a table of these fields and the part's options."""
    words, hooks = KernelTable(SimpleNamespace(options=options_of(part), **fields)), Hooks()
    STAGE(hooks.add(part, name, frame, words.values))(n, 0, 0, words.address)
    hooks.check()


def options_of(part: Part, *extra: float) -> FloatArray:
    """Return a part's fields as numbers, for its methods' ``self``; `extra` numbers follow."""
    numbers = []
    for field in dataclasses.fields(part):
        value, choices = getattr(part, field.name), option_of(field).choices
        if choices:
            value = choices.index(value)
        numbers.append(float(value) if isinstance(value, int | float) else 0.0)
    return np.array([*numbers, *extra], np.float64)


def padded(rows: list[FloatArray]) -> FloatArray:
    """Return vectors as the rows of one array, with zeros behind the shorter ones."""
    out = np.zeros((len(rows), max((row.size for row in rows), default=0)))
    for row, values in zip(out, rows, strict=True):
        row[: values.size] = values
    return out


def explained(error: BaseException) -> BaseException:
    """Return an error in a part's code as a PsofedError that names the file and line."""
    if isinstance(error, PsofedError) or not isinstance(error, Exception):
        return error
    trace = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(trace.filename).name}, line {trace.lineno}"
    explanation = PsofedError(f"a part's own code failed with {type(error).__name__}: {error} ({where})")
    explanation.__cause__ = error
    return explanation


def why_python(part: Part) -> str | None:
    """Return why a part's method runs as plain Python; None if it is compiled, or has not been used yet."""
    return RUN_AS_PYTHON.get(type(part))


@contextmanager
def run_as_python(part: Part) -> Iterator[None]:
    """Run a part's methods as plain Python in all runs that begin within the block."""
    before = RUN_AS_PYTHON.copy()
    RUN_AS_PYTHON[type(part)] = "asked for"
    try:
        yield
    finally:
        RUN_AS_PYTHON.clear()
        RUN_AS_PYTHON.update(before)


# --- compiling -------------------------------------------------------------------------------------------------------


def _python_method(part: Part, name: str) -> Method:
    method = getattr(type(part), name)
    if takes_memory(method):
        return lambda _options, memory, seen, *out: method(part, seen, memory, *out)
    return lambda _options, _memory, seen, *out: method(part, seen, *out)


def _compiled_address(part: Part, name: str, frame: Frame, table: TableType) -> int | None:
    """Return where the compiled method stands, or None where Numba cannot compile it, which is noted."""
    kind: Any = type(part)
    with _COMPILING:
        if kind in RUN_AS_PYTHON:
            return None
        try:
            return int(_compile(kind, name, frame, table).address)
        except Exception as error:  # whatever Numba stumbles over; the method itself is not run here
            RUN_AS_PYTHON[kind] = _reason(error)
            return None


@cache
def _compile(kind: Any, name: str, frame: Frame, table: TableType) -> Any:
    body = getattr(kind, name)
    if not isinstance(body, FunctionType):
        raise _CannotCompile(f"{kind.__name__}.{name} is not a plain method")
    method = _compiled_method(kind, body)
    register_jitable(frame)

    def stage(n: int, k: int, g: int, values: Any) -> None:
        frame(method, n, k, g, values)

    with own_cache(f"{kind.kind}-{function_digest(body, frame)}") as folder, warnings.catch_warnings():
        # Such as that it cannot be kept on disk.
        warnings.simplefilter("ignore", numba.errors.NumbaWarning)
        if kind not in _ANNOUNCED and not any(folder.rglob("*.nbi")):
            _ANNOUNCED.add(kind)
            notify(f'compiling {kind.family} "{kind.kind}" (once)')
        return compile_stage(stage, table)


# Parts with several methods are announced once.
_ANNOUNCED: set[type[Part]] = set()


def _reason(error: Exception) -> str:
    """Return the reason why Numba failed, on one line that is the same in every process."""
    text = re.sub(r"Function\(<(?:built-in )?function (\S+?)(?: at 0x[0-9a-f]+)?>\)", r"\1", str(error))
    call = re.search(r"No implementation of function (\S+) found for signature:\s*>>> (.*)", text)
    if call:
        return f"Numba cannot compile {call[2].strip()}"
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    headings = ("Failed in nopython", "During:", "File ", "There are", "- Of which", "raised from", "Overload")
    reasons = [line for line in lines if not line.startswith(headings)]
    return re.sub(r" at 0x[0-9a-f]+", "", (reasons or lines or [type(error).__name__])[0])[:200]


class _CannotCompile(Exception):  # noqa: N818 (it is caught here)
    """A method, or a field it reads, that Numba cannot compile."""


_TAUGHT: set[Any] = set()


def teach(function: FunctionType) -> None:
    """Let Numba compile a plain function, and the plain functions it calls."""
    if function in _TAUGHT or function.__module__ == vectors.__name__:
        return
    if any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(function)):
        # A C function cannot raise: the error would only be printed, and the run would continue with wrong numbers.
        raise _CannotCompile(f"{function.__name__} may raise an error, and compiled code cannot")
    _TAUGHT.add(function)
    register_jitable(forceinline=True)(function)
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, FunctionType):
            teach(used)


def _compiled_method(kind: type[Part], body: FunctionType) -> FunctionType:
    """Return ``method(options, memory, seen, *out)``, which makes the part's ``Fields`` from numbers.

    Fields that the method does not read are 0. It is made from text, and put where it can be found by name.
    """
    name = f"_call_{body.__name__}"
    if name in vars(kind):
        made: FunctionType = vars(kind)[name].__func__
        return made
    read = set(body.__code__.co_names)
    entries = []
    for place, field in enumerate(dataclasses.fields(kind)):
        about, (value, optional) = option_of(field), value_type(field)
        if field.name not in read:
            entries.append("0.0")
        elif about.choices:
            entries.append(f"{about.choices!r}[int(options[{place}])]")
        elif optional or value not in ("int", "float", "bool"):
            raise _CannotCompile(f"its body reads {field.name}, which is not a number")
        else:
            text = f"options[{place}]"
            entries.append({"int": f"int({text})", "bool": f"{text} != 0.0", "float": text}[value])
    shown = list(body.__code__.co_varnames[1 : body.__code__.co_argcount])
    out = [argument for argument in shown[1:] if argument != "memory"]
    space: dict[str, Any] = {"Fields": kind.Fields, "_body": body}
    exec(
        f"def {name}({', '.join(['options', 'memory', shown[0], *out])}):\n"
        f"    return _body(Fields({', '.join(entries)}), {', '.join(shown)})",
        space,
    )
    made = space[name]
    made.__module__, made.__qualname__ = kind.__module__, f"{kind.__qualname__}.{name}"
    setattr(kind, name, staticmethod(made))
    teach(made)
    return made
