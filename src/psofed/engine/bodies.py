"""Turn a part's body into a hook that kernels call: compiled, or in Python where Numba cannot compile it.

A hook is a C function of one fixed signature for each kind of hook (:mod:`psofed.engine.hooks`), so a kernel is
compiled once for all parts. It is made by a *frame*, which owns loops, lanes and signs, around the *body*, the part's
own method. The frame is closed over plain functions that can be imported by name, since Numba's cache on disk knows
those again in another process.
"""

import dataclasses
import dis
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import config as numba_config

import psofed.engine.vocabulary  # noqa: F401 (teaches Numba the words of psofed.parts.vectors)
from psofed.common.errors import PsofedError
from psofed.common.fingerprint import function_digest
from psofed.common.notices import notify
from psofed.common.options import option_of, value_type
from psofed.common.types import FloatArray
from psofed.engine.compiling import jitable, own_cache, pipeline, without_garbage_collection
from psofed.engine.hooks import AGGREGATION, CHANNEL, DRAW
from psofed.engine.python_bodies import PYTHON_FRAMES, python_call
from psofed.parts import vectors
from psofed.parts.part import Part

Frame = Callable[..., Any]
MakeFrame = Callable[..., Frame]

# A part's own method, and what makes its `self` from numbers.
Body = Callable[..., Any]
Unpack = Callable[..., Any]


class Hook(NamedTuple):
    """A part in the form that a kernel takes.

    Attributes
    ----------
    address : int
        Where the C function stands, for :func:`psofed.engine.compiling.hook_taker`; to be called with `token` first.
    token : int
        Says which Python body to run; 0 where the body is compiled.
    options : array (any,)
        The part's fields as numbers.
    """

    address: int
    token: int
    options: FloatArray


# What a kernel is handed where there is nothing to call; it never does.
NO_HOOK = Hook(0, 0, np.zeros(0))

# Parts whose body runs as plain Python, since Numba could not compile it, and why; by class.
RUN_AS_PYTHON: dict[type[Part], str] = {}

_COMPILING = threading.RLock()
_CFUNC_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy"}
_WITHOUT_REFERENCES: dict[str, Any] = {**_CFUNC_OPTIONS, **pipeline(allocates=False)}
_TOKENS = count(1)


def make_hook(part: Part, body: str, signature: Any, make_frame: MakeFrame, *extra: float) -> Hook:
    """Return the hook of a part's method `body`.

    Parameters
    ----------
    part : Part
        The part.
    body : str
        Name of the method.
    signature : numba signature
        Of the hook.
    make_frame : callable
        ``make_frame(unpack, body)`` returns the frame.
    extra : float
        Numbers that follow the part's own in `options`.
    """
    kind = type(part)
    call = _compile(kind, body, signature, make_frame)
    if call is not None:
        return Hook(call.address, 0, np.array([*_numbers_of(part), *extra], dtype=np.float64))
    frame = make_frame(lambda _options: part, getattr(kind, body))
    token = next(_TOKENS)
    PYTHON_FRAMES[token] = (frame, [])
    return Hook(python_call(signature).address, token, np.array(extra, dtype=np.float64))


def make_function(
    part: Part, body: str, signature: Any, make_frame: MakeFrame, call: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a part's method with its frame as a compiled function that Python can call, with the part's options bound.

    `call` is a compiled function that calls a hook: ``call(address, options, …)``.
    """
    hook = make_hook(part, body, signature, make_frame)
    if hook.token:
        frame = PYTHON_FRAMES.pop(hook.token)[0]

        def call_python(*arguments: Any) -> None:
            try:
                frame(0, hook.options, *arguments)
            except Exception as error:
                raise _explained(error) from error

        return call_python
    return lambda *arguments: call(hook.address, hook.options, *arguments)


def raise_python_error(*hooks: Hook) -> None:
    """Raise the error of a Python body that a kernel called; the C function itself cannot raise."""
    for hook in hooks:
        if hook.token and (errors := PYTHON_FRAMES[hook.token][1]):
            raise _explained(errors[0])


def _explained(error: BaseException) -> BaseException:
    """Return an error in a part's code as a PsofedError that names the file and line."""
    if isinstance(error, PsofedError) or not isinstance(error, Exception):
        return error
    trace = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(trace.filename).name}, line {trace.lineno}"
    told = PsofedError(f"a part's own code failed with {type(error).__name__}: {error} ({where})")
    told.__cause__ = error
    return told


def release(*hooks: Hook) -> None:
    """Release Python bodies that no kernel will call again."""
    for hook in hooks:
        PYTHON_FRAMES.pop(hook.token, None)


class HookHolder:
    """Holds hooks for as long as kernels may call them."""

    _hooks: tuple[Hook, ...] = ()

    def check(self) -> None:
        """Raise the error of a part's Python body, if there was one."""
        raise_python_error(*self._hooks)

    def __del__(self) -> None:
        release(*self._hooks)


def why_python(part: Part) -> str | None:
    """Return why a part's body runs as plain Python; None if it is compiled, or has not been used yet."""
    return RUN_AS_PYTHON.get(type(part))


@contextmanager
def run_as_python(part: Part) -> Iterator[None]:
    """Run a part's body as plain Python in all runs that begin within the block."""
    kept = RUN_AS_PYTHON.copy()
    RUN_AS_PYTHON[type(part)] = "asked for"
    try:
        yield
    finally:
        RUN_AS_PYTHON.clear()
        RUN_AS_PYTHON.update(kept)


def _compile(kind: type[Part], body: str, signature: Any, make_frame: MakeFrame) -> Any:
    with _COMPILING:
        if kind in RUN_AS_PYTHON:
            return None
        try:
            return _compiled_hook(kind, body, signature, make_frame)  # type: ignore[arg-type]
        except Exception as error:  # whatever Numba stumbles over; the body itself is not run here
            RUN_AS_PYTHON[kind] = _reason(error)
            return None


def _reason(error: Exception) -> str:
    """Return the reason why Numba failed, on one line that is the same in every process."""
    text = re.sub(r"Function\(<(?:built-in )?function (\S+?)(?: at 0x[0-9a-f]+)?>\)", r"\1", str(error))
    call = re.search(r"No implementation of function (\S+) found for signature:\s*>>> (.*)", text)
    if call:
        return f"Numba cannot compile {call[2].strip()}"
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    headings = (
        "Failed in nopython",
        "During:",
        "File ",
        "There are",
        "- Of which",
        "raised from",
        "Overload",
    )
    told = [line for line in lines if not line.startswith(headings)]
    return re.sub(r" at 0x[0-9a-f]+", "", (told or lines or [type(error).__name__])[0])[:200]


# Parts with several bodies are announced once.
_TOLD: set[type[Part]] = set()


@cache
def _compiled_hook(kind: type[Part], body: str, signature: Any, make_frame: MakeFrame) -> Any:
    function = getattr(kind, body)
    if not isinstance(function, FunctionType):
        raise _CannotCompile(f"{kind.__name__}.{body} is not a plain method")
    frame = make_frame(_make_unpack(kind, function), function)
    _teach(function)
    made_of = f"{kind.kind}-{function_digest(function, make_frame)}"
    with own_cache(made_of) as folder, warnings.catch_warnings(), without_garbage_collection():
        # Such as that it cannot be kept on disk.
        warnings.simplefilter("ignore", numba.core.errors.NumbaWarning)
        if kind not in _TOLD and not any(folder.rglob("*.nbi")):
            _TOLD.add(kind)
            notify(f'compiling {kind.family} "{kind.kind}" (once)')
        # Compiled, or loaded from disk. Where nothing is allocated no references need counting, which saves much of a
        # short body's time; if Numba finds that something is, it is compiled as usual.
        with _for_short_loops() if signature in _SHORT else nullcontext():
            if _MAKES_ARRAYS.isdisjoint(frame.__code__.co_names + function.__code__.co_names):
                try:
                    return numba.cfunc(signature, **_WITHOUT_REFERENCES)(frame)
                except Exception:  # the body allocates, or cannot be compiled at all
                    pass
            return numba.cfunc(signature, **_CFUNC_OPTIONS)(frame)


# What a frame or a body calls that allocates; the attempt without would be in vain.
_MAKES_ARRAYS = {"empty", "zeros", "full", "copy"}


# Rules and streams work on a handful of numbers, just written.
_SHORT = (AGGREGATION, CHANNEL, DRAW)


@contextmanager
def _for_short_loops() -> Iterator[None]:
    """Disable LLVM optimisations that only pay off for long loops, such as vectorisation.

    Vectors of numbers just written one by one would wait for each to arrive in memory: norm clipping of six numbers
    takes half as long without, and is compiled sooner.
    """
    config: Any = numba_config
    previous = config.LOOP_VECTORIZE, config.OPT
    config.LOOP_VECTORIZE, config.OPT = 0, type(config.OPT)(min(int(config.OPT), 2))
    try:
        yield
    finally:
        config.LOOP_VECTORIZE, config.OPT = previous


class _CannotCompile(Exception):  # noqa: N818 (it is caught here)
    """A body, or a field it reads, that Numba cannot compile."""


def _teach(function: FunctionType) -> None:
    """Let Numba compile a plain function, and the plain functions it calls."""
    if function in _TAUGHT or function.__module__ == vectors.__name__:
        return
    if any(step.opname == "RAISE_VARARGS" for step in dis.get_instructions(function)):
        # A C function cannot raise: the error would only be printed, and the run would continue with wrong numbers.
        raise _CannotCompile(f"{function.__name__} may raise an error, and compiled code cannot")
    _TAUGHT.add(function)
    # Inlined: what the frame knows about its arguments, such as a length of 1, holds inside as well.
    jitable(function, inline=True)
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if isinstance(used, FunctionType):
            _teach(used)


_TAUGHT: set[Any] = set()


def reads_field(body: Body, name: str) -> bool:
    """Tell whether a part's method may read a field of its first argument; False only if it reads others by name."""
    code = getattr(body, "__code__", None)
    if code is None or code.co_argcount < 2:
        return True
    argument = code.co_varnames[1]
    for step, following in pairwise(dis.get_instructions(code)):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        by_name = step.opname.startswith("LOAD_FAST") and following.opname == "LOAD_ATTR" and len(names) == 1
        if argument in names and not (by_name and following.argval != name):
            return True
    return False


def _make_unpack(kind: type[Part], function: FunctionType) -> FunctionType:
    """Return a function that makes a part's ``Fields`` from numbers; those that the body does not read are 0.

    It is made from text, and put where it can be found by name.
    """
    name = f"_unpack_{function.__name__}"
    if name in vars(kind):
        made: FunctionType = vars(kind)[name].__func__
        return made
    read = set(function.__code__.co_names)
    entries = []
    for place, field in enumerate(dataclasses.fields(kind)):
        about, (value, optional) = option_of(field), value_type(field)
        if field.name not in read:
            entries.append("0.0")
        elif about.choices:
            entries.append(f"{about.choices!r}[int(values[{place}])]")
        elif optional or value not in ("int", "float", "bool"):
            raise _CannotCompile(f"its body reads {field.name}, which is not a number")
        else:
            text = f"values[{place}]"
            entries.append({"int": f"int({text})", "bool": f"{text} != 0.0", "float": text}[value])
    space: dict[str, Any] = {"Fields": kind.Fields}
    exec(f"def {name}(values):\n    return Fields({', '.join(entries)})", space)
    made = space[name]
    made.__module__, made.__qualname__ = kind.__module__, f"{kind.__qualname__}.{name}"
    setattr(kind, name, staticmethod(made))
    _teach(made)
    return made


def _numbers_of(part: Part) -> list[float]:
    numbers = []
    for field in dataclasses.fields(part):
        value, choices = getattr(part, field.name), option_of(field).choices
        if choices:
            numbers.append(float(choices.index(value)))
        else:
            numbers.append(float(value) if isinstance(value, int | float) else 0.0)
    return numbers
