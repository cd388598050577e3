"""Turn a part's method into a function that kernels call: compiled, or in Python where Numba cannot compile it.

A *hook* is a C function of one fixed signature for each purpose (:mod:`psofed.engine.signatures`), so a kernel is
compiled once for all parts. It is made by a *frame*, which loops over trials and clients, around the part's own method.
Frames are closed over plain functions that can be imported by name, since Numba's cache on disk knows those again in
another process.
"""

import ctypes
import dataclasses
import dis
import re
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload, register_jitable

import psofed.engine.vocabulary  # noqa: F401 (teaches Numba the words of psofed.parts.vectors)
from psofed.common.errors import PsofedError
from psofed.common.fingerprint import function_digest
from psofed.common.notices import notify
from psofed.common.options import option_of, value_type
from psofed.common.types import FloatArray
from psofed.engine.compiling import OPTIONS, instruction, own_cache
from psofed.parts import vectors
from psofed.parts.part import Part

T = TypeVar("T")

Frame = Callable[..., Any]
Body = Callable[..., Any]

# Makes a frame from a function that makes the part's `self` from numbers, and from the part's method.
MakeFrame = Callable[[Callable[..., Any], Body], Frame]


class Hook(NamedTuple):
    """A part in the form that a kernel takes.

    Attributes
    ----------
    address : int
        Where the C function stands; 0 where there is nothing to call.
    options : array (any,)
        The part's fields as numbers, the function's first argument. Of a method that runs as Python: its token.
    token : int
        Says which Python method to run; 0 where the method is compiled.
    """

    address: int
    options: FloatArray
    token: int = 0


NO_HOOK = Hook(0, np.zeros(0))

# Parts whose methods run as plain Python, since Numba could not compile them, and why; by class.
RUN_AS_PYTHON: dict[type[Part], str] = {}

_COMPILING = threading.RLock()
_TOKENS = count(1)

# The frames that run as Python, by token, with the errors they raised.
_PYTHON_FRAMES: dict[int, tuple[Frame, list[BaseException]]] = {}


def make_hook(part: Part, method: str, signature: Any, make_frame: MakeFrame, *extra: float) -> Hook:
    """Return the hook of a part's method; `extra` numbers follow the part's own in its options."""
    kind: Any = type(part)
    frame = _compiled_frame(kind, method, make_frame)
    call = (
        None if frame is None else _attempt(kind, lambda: _compiled_hook(kind, method, signature, make_frame))
    )
    if call is not None:
        return Hook(call.address, np.array([*_numbers_of(part), *extra], np.float64))
    token = next(_TOKENS)
    _PYTHON_FRAMES[token] = (make_frame(lambda _options: part, getattr(kind, method)), [])
    return Hook(_python_call(signature).address, np.array([token, *extra], np.float64), token)


def make_function(part: Part, method: str, make_frame: MakeFrame) -> Callable[..., Any]:
    """Return a part's method with its frame as a function that Python calls, with the part's options bound."""
    kind: Any = type(part)

    def run_python(*arguments: Any) -> None:
        try:
            make_frame(lambda _options: part, getattr(kind, method))(np.zeros(0), *arguments)
        except Exception as error:
            raise explained(error) from error

    function = _compiled_frame(kind, method, make_frame)
    options = np.array(_numbers_of(part), np.float64)

    def run(*arguments: Any) -> None:
        call = None
        if function is not None:
            types_of = tuple(numba.typeof(argument) for argument in (options, *arguments))
            call = _attempt(kind, lambda: function.compile(types_of))
        if call is None:
            run_python(*arguments)
        else:
            function(options, *arguments)

    return run


def watch_hooks(owner: object, hooks: tuple[Hook, ...]) -> Callable[[], None]:
    """Return a function that raises the error of a Python method, if there was one; release methods with the owner."""
    tokens = [hook.token for hook in hooks if hook.token]
    weakref.finalize(owner, lambda: [_PYTHON_FRAMES.pop(token, None) for token in tokens])

    def check() -> None:
        for token in tokens:
            if errors := _PYTHON_FRAMES[token][1]:
                raise explained(errors[0])

    return check


def explained(error: BaseException) -> BaseException:
    """Return an error in a part's code as a PsofedError that names the file and line."""
    if isinstance(error, PsofedError) or not isinstance(error, Exception):
        return error
    trace = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(trace.filename).name}, line {trace.lineno}"
    told = PsofedError(f"a part's own code failed with {type(error).__name__}: {error} ({where})")
    told.__cause__ = error
    return told


def why_python(part: Part) -> str | None:
    """Return why a part's method runs as plain Python; None if it is compiled, or has not been used yet."""
    return RUN_AS_PYTHON.get(type(part))


@contextmanager
def run_as_python(part: Part) -> Iterator[None]:
    """Run a part's methods as plain Python in all runs that begin within the block."""
    kept = RUN_AS_PYTHON.copy()
    RUN_AS_PYTHON[type(part)] = "asked for"
    try:
        yield
    finally:
        RUN_AS_PYTHON.clear()
        RUN_AS_PYTHON.update(kept)


def hook_taker(signature: Any) -> Callable[[int], Callable[..., None]]:
    """Return a function that turns an address into a hook with the given `signature`, inside a kernel."""
    kind = types.FunctionType(signature)

    @instruction
    def take(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
        def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            function = context.get_value_type(kind)  # a struct that begins with the address
            address = builder.inttoptr(arguments[0], function.elements[0])
            return builder.insert_value(ir.Constant(function, None), address, 0)

        return kind(address), emit

    return cast("Callable[[int], Callable[..., None]]", take)


def borrow(values: T) -> T:
    """Return the arrays of a tuple without their owners, so that compiled code counts no references to them.

    Counting takes longer than an iteration of a small fleet. Python holds the arrays while the kernel runs.
    """
    return values


@overload(borrow, jit_options={"forceinline": True})
def _borrow(values: Any) -> Any:
    # Numba wants both signatures to be the same, annotations included.
    def body(values: Any) -> Any:
        return _without_owners(values)

    return body


@instruction
def _without_owners(typing_context: Any, values: Any) -> tuple[Any, Callable[..., Any]]:
    def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        members = []
        for place, kind in enumerate(values.types):
            array = context.make_array(kind)(context, builder, builder.extract_value(arguments[0], place))
            array.meminfo = array.meminfo.type(None)
            members.append(array._getvalue())
        return context.make_tuple(builder, values, members)

    return values(values), emit


# --- compiling -------------------------------------------------------------------------------------------------------


def _attempt(kind: type[Part], compile_it: Callable[[], Any]) -> Any:
    """Return what is compiled, or None where Numba cannot, which is noted."""
    with _COMPILING:
        if kind in RUN_AS_PYTHON:
            return None
        try:
            return compile_it()
        except Exception as error:  # whatever Numba stumbles over; the method itself is not run here
            RUN_AS_PYTHON[kind] = _reason(error)
            return None


def _compiled_frame(kind: Any, method: str, make_frame: MakeFrame) -> Any:
    """Return a frame that is compiled when it is called; None where that is known to fail."""
    return _attempt(kind, lambda: _prepare(kind, method, make_frame))


@cache
def _prepare(kind: Any, method: str, make_frame: MakeFrame) -> Any:
    body = getattr(kind, method)
    if not isinstance(body, FunctionType):
        raise _CannotCompile(f"{kind.__name__}.{method} is not a plain method")
    frame = make_frame(_make_unpack(kind, body), body)
    teach(body)
    with _cache_of(kind, body, make_frame):
        return numba.njit(cache=True, **OPTIONS)(frame)


@cache
def _compiled_hook(kind: Any, method: str, signature: Any, make_frame: MakeFrame) -> Any:
    frame, body = _prepare(kind, method, make_frame).py_func, getattr(kind, method)
    with _cache_of(kind, body, make_frame), warnings.catch_warnings():
        # Such as that it cannot be kept on disk.
        warnings.simplefilter("ignore", numba.errors.NumbaWarning)
        return numba.cfunc(signature, cache=True, error_model="numpy")(frame)


# Parts with several methods are announced once.
_TOLD: set[type[Part]] = set()


@contextmanager
def _cache_of(kind: type[Part], body: Body, make_frame: MakeFrame) -> Iterator[None]:
    """Let what is compiled inside be kept in the folder of a part's method; say so if it has to be compiled."""
    with own_cache(f"{kind.kind}-{function_digest(body, make_frame)}") as folder:
        if kind not in _TOLD and not any(folder.rglob("*.nbi")):
            _TOLD.add(kind)
            notify(f'compiling {kind.family} "{kind.kind}" (once)')
        yield


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


def _make_unpack(kind: type[Part], function: FunctionType) -> FunctionType:
    """Return a function that makes a part's ``Fields`` from numbers; those that the method does not read are 0.

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
    teach(made)
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


# --- plain Python inside a kernel ------------------------------------------------------------------------------------

# A C function cannot hand arrays to Python, so their addresses and shapes are written into two buffers.
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
_KEPT_ALIVE: list[Any] = []


@cache
def _python_call(signature: Any) -> Any:
    """Return a hook of the given signature that runs the frame whose token is its first option, as plain Python."""
    lines, names = [], [f"a{place}" for place in range(len(signature.args))]
    integers, numbers = 0, 0

    def write(kind: Any, text: str) -> None:
        nonlocal integers, numbers
        if hasattr(kind, "fields"):
            for field, member in zip(kind.fields, kind.types, strict=True):
                write(member, f"{text}.{field}")
        elif isinstance(kind, types.Array):
            lines.append(f"    integers[{integers}] = {text}.ctypes.data")
            lines.extend(f"    integers[{integers + 1 + d}] = {text}.shape[{d}]" for d in range(kind.ndim))
            integers += 1 + kind.ndim
        elif isinstance(kind, types.Float):
            lines.append(f"    numbers[{numbers}] = {text}")
            numbers += 1
        else:
            lines.append(f"    integers[{integers}] = {text}")
            integers += 1

    for kind, name in zip(signature.args, names, strict=True):
        write(kind, name)

    def receive(integer_address: int, number_address: int) -> None:
        whole = iter(_view(integer_address, (integers,), np.int64).tolist())
        real = iter(_view(number_address, (max(numbers, 1),), np.float64).tolist())
        arguments = [_read(kind, whole, real) for kind in signature.args]
        frame, errors = _PYTHON_FRAMES[int(arguments[0][0])]
        if not errors:
            try:
                frame(*arguments)
            except BaseException as error:
                errors.append(error)

    callback = _CALLBACK(receive)
    _KEPT_ALIVE.append(callback)
    made = f"    integers, numbers = np.empty({integers}, np.int64), np.empty({max(numbers, 1)})"
    ending = "    callback(integers.ctypes.data, numbers.ctypes.data)"
    space: dict[str, Any] = {"np": np, "callback": callback}
    exec("\n".join([f"def frame({', '.join(names)}):", made, *lines, ending]), space)
    return numba.cfunc(signature)(space["frame"])


def _read(kind: Any, integers: Any, numbers: Any) -> Any:
    if hasattr(kind, "fields"):
        return kind.instance_class(*(_read(member, integers, numbers) for member in kind.types))
    if isinstance(kind, types.Array):
        address = next(integers)
        return _view(address, tuple(next(integers) for _ in range(kind.ndim)), _dtype(kind.dtype))
    return next(numbers) if isinstance(kind, types.Float) else next(integers)


def _view(address: int, shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype).reshape(shape)


def _dtype(kind: Any) -> Any:
    return np.bool_ if isinstance(kind, types.Boolean) else np.dtype(str(kind))
