"""Objects full of arrays that compiled code reads through one address, and functions that it calls by theirs.

Numba passes a tuple of arrays as seven and more numbers for each array. A table is one number, so what takes it is
compiled and called in a fraction of the time. Its fields are the attributes of an object, or a named tuple's. Its
arrays are contiguous and borrowed: Python holds them while a kernel runs, and compiled code counts no references to
them.

Whatever differs between scenarios is a *stage*: a C function ``stage(n, k, g, table)`` of the iteration, two numbers
whose meaning is the stage's own, and the table that it reads and writes.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from llvmlite import ir
from numba import cfunc, int64, typeof, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from psofed.engine.compiling import OPTIONS, instruction, own_cache

Stage = Callable[[int, int, int, Any], None]

# A stage as Python calls it, and writes it.
STAGE: Any = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

_WORD = ir.IntType(64)
_LLVM_STAGE = ir.FunctionType(ir.VoidType(), [_WORD, _WORD, _WORD, _WORD.as_pointer()])


class TableData:
    """Base class of what kernels read: its attributes, in the order in which ``__init__`` sets them, are the fields."""


def _fields_of(values: Any) -> dict[str, Any]:
    names = getattr(values, "_fields", None)  # of a named tuple
    return vars(values) if names is None else dict(zip(names, values, strict=True))


class TableType(types.Type):
    """The type of a table: the name of the object's class, and its fields' names and types."""

    def __init__(self, class_name: str, members: tuple[tuple[str, Any], ...]) -> None:
        self.places: dict[str, tuple[int, Any]] = {}
        end = 0
        for field, member in members:
            self.places[field] = (end, member)
            end += 1 + (member.ndim if isinstance(member, types.Array) else 0)
        # Short: it is part of the name of every function that takes the table.
        super().__init__(name=f"{class_name}.{sha256(str(members).encode()).hexdigest()[:12]}")


class KernelTable:
    """An object of numbers, contiguous arrays and such objects, as words: an array is address and shape.

    Parameters
    ----------
    values : TableData or named tuple
    previous : KernelTable or None
        One of the same kind; tables of those objects that are the same in both are used again.
    """

    _tables: ClassVar["WeakValueDictionary[int, KernelTable]"] = WeakValueDictionary()

    def __init__(self, values: Any, previous: "KernelTable | None" = None) -> None:
        self.values = values
        self._parts: list[Any] = []
        words: list[int] = []
        members: list[tuple[str, Any]] = []
        for place, (name, value) in enumerate(_fields_of(values).items()):
            part: Any = None
            if isinstance(value, np.ndarray):
                assert value.flags.c_contiguous, "a table's arrays are contiguous"
                words += [value.ctypes.data, *value.shape]
                members.append((name, _array_type(value.dtype, value.ndim)))
            elif isinstance(value, tuple) or hasattr(value, "__dict__"):
                part = None if previous is None else previous._parts[place]
                if part is None or part.values is not value:
                    part = KernelTable(value, part)
                words.append(part.address)
                members.append((name, part.kind))
            elif isinstance(value, float):
                words.append(int(np.float64(value).view(np.int64)))
                members.append((name, types.float64))
            else:
                words.append(int(value))
                members.append((name, types.boolean if isinstance(value, bool | np.bool_) else types.int64))
            self._parts.append(part)
        self._words = np.array(words, np.int64)
        self.address: int = self._words.ctypes.data
        self.kind: TableType = _table_type(type(values).__name__, tuple(members))
        self._tables[self.address] = self

    @classmethod
    def values_at(cls, address: int) -> Any:
        """Return the object whose table stands at an address."""
        return cls._tables[address].values


@cache
def _array_type(dtype: Any, dimensions: int) -> Any:
    return typeof(np.empty((0,) * dimensions, dtype))


@cache
def _table_type(class_name: str, members: tuple[tuple[str, Any], ...]) -> TableType:
    return TableType(class_name, members)


@typeof_impl.register(KernelTable)
def _type_of(table, context):
    return table.kind


@register_model(TableType)
class _TableModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _WORD.as_pointer())


@unbox(TableType)
def _take_address(kind, table, c):
    number = c.pyapi.object_getattr_string(table, "address")
    address = c.builder.inttoptr(c.pyapi.long_as_longlong(number), _WORD.as_pointer())
    c.pyapi.decref(number)
    return NativeValue(address, is_error=_is_set(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _Fields(AttributeTemplate):
    key = TableType

    def generic_resolve(self, table, name):  # type: ignore[override]
        return table.places.get(name, (0, None))[1]


@lower_getattr_generic(TableType)
def _read(context, builder, kind, words, name):
    place, member = kind.places[name]

    def word(j):
        value = builder.load(builder.gep(words, [ir.Constant(_WORD, place + j)], inbounds=True))
        # Nothing changes a table while a kernel runs, so that words need not be read again after each store.
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    if isinstance(member, TableType):
        return builder.inttoptr(word(0), _WORD.as_pointer())
    if not isinstance(member, types.Array):
        if member == types.boolean:
            return _is_set(builder, word(0))
        return builder.bitcast(word(0), ir.DoubleType()) if member == types.float64 else word(0)
    array = context.make_array(member)(context, builder)
    shape: list[Any] = [word(1 + d) for d in range(member.ndim)]
    strides: list[Any] = []
    size = ir.Constant(_WORD, np.dtype(str(member.dtype)).itemsize if member.dtype != types.boolean else 1)
    array.itemsize, stride = size, size
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride = builder.mul(stride, extent)
    array.data = builder.inttoptr(word(0), array.data.type)
    array.shape, array.strides = _packed(builder, shape), _packed(builder, strides)
    array.nitems = builder.sdiv(stride, size)
    array.meminfo, array.parent = array.meminfo.type(None), array.parent.type(None)
    return array._getvalue()


def _is_set(builder, value):
    return builder.icmp_unsigned("!=", value, ir.Constant(value.type, None))


def _packed(builder, values):
    packed = ir.Constant(ir.ArrayType(_WORD, len(values)), ir.Undefined)
    for place, value in enumerate(values):
        packed = builder.insert_value(packed, value, place)
    return packed


def compile_stage(stage: Stage, kind: TableType) -> Any:
    """Return the C function of a stage that takes tables of one kind; it has an ``address``."""
    return cfunc(types.void(int64, int64, int64, kind), cache=True, **OPTIONS)(stage)


@cache
def stage_address(stage: Stage, kind: TableType) -> int:
    """Return where a stage of the engine's own stands."""
    with own_cache():
        return int(compile_stage(stage, kind).address)


@instruction
def call(typing_context, address, n, k, g, table):
    """Call a stage by its address, inside a kernel."""

    def emit(context, builder, sig, args):
        builder.call(builder.inttoptr(args[0], _LLVM_STAGE.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(int64, int64, int64, int64, table), emit
