"""Flower's records without the checks that cost more than the rest: built from values whose types are known.

A record checks key and value whenever one is set, and an array the arguments it is made of. What psofed puts into a
record, and what protobuf has read, has the right types already. So records are filled here directly, as Flower's own
``copy`` does.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Proto
from google.protobuf.message import DecodeError

_Record = TypeVar("_Record", ConfigRecord, MetricRecord, ArrayRecord, RecordDict)
_FIELDS = {bool: "bool", int: "sint64", float: "double", str: "string", bytes: "bytes"}
_LISTS = {bool: "bool_list", int: "sint_list", float: "double_list", str: "string_list", bytes: "bytes_list"}
_LIST_NAMES = {*_LISTS.values(), "uint_list"}
_PLACES = {ConfigRecord: "config_record", MetricRecord: "metric_record", ArrayRecord: "array_record"}
_LONGEST = (1 << 63) - 1  # of Flower's numbers with a sign
_EMPTY = {kind: vars(kind()) for kind in (ConfigRecord, MetricRecord, ArrayRecord, RecordDict)}


def fill(kind: type[_Record], values: dict[str, Any]) -> _Record:
    """Return a new record that holds the very dict `values`; their types must be those that the record takes.

    Examples
    --------
    >>> fill(ConfigRecord, {"n": 1, "names": ["a"]}) == ConfigRecord({"n": 1, "names": ["a"]})
    True
    """
    record = kind.__new__(kind)
    record.__dict__.update(_EMPTY[kind], _data=values)
    return record


def plain(record: ConfigRecord | MetricRecord | RecordDict) -> dict[str, Any]:
    """Return the values of a record as the dict that holds them, which is quicker to read."""
    values: dict[str, Any] = record.__dict__["_data"]
    return values


def make_array(dtype: str, shape: tuple[int, ...], data: bytes) -> Array:
    """Return an array of ``.npy`` bytes."""
    array: Array = Array.__new__(Array)
    array.__dict__.update(dtype=dtype, shape=shape, stype="numpy.ndarray", data=data)
    return array


def records_to_bytes(records: RecordDict) -> bytes:
    """Serialise records with Flower's protobuf."""
    proto = Proto()
    try:
        for name, record in records.items():
            place = getattr(proto.items.add(key=name), _PLACES[type(record)])
            place.SetInParent()
            (_write_arrays if type(record) is ArrayRecord else _write)(place.items, record)
    except (KeyError, AttributeError):  # an empty list, or a type that is derived from one of Flower's
        proto = recorddict_to_proto(records)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def records_from_bytes(data: bytes) -> RecordDict:
    """Read what :func:`records_to_bytes` wrote; ValueError if it did not write that."""
    try:
        proto = Proto.FromString(data)
        return fill(RecordDict, {item.key: _READERS[item.WhichOneof("value")](item) for item in proto.items})
    except (DecodeError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not records: {type(error).__name__}") from None


def _write(items: Any, values: Mapping[str, Any]) -> None:
    """Add `values` to the items of a protobuf record."""
    for key, value in values.items():
        place = items.add(key=key).value
        kind: Any = type(value)
        if kind is not list:
            large = kind is int and value > _LONGEST
            setattr(place, "uint64" if large else _FIELDS[kind], value)
            continue
        kind = type(value[0]) if value else None
        if len(value) > 1 and {*map(type, value)} != {kind}:
            raise KeyError(kind)
        large = kind is int and max(value) > _LONGEST
        getattr(place, "uint_list" if large else _LISTS[kind]).vals.extend(value)


def _write_arrays(items: Any, arrays: Mapping[str, Any]) -> None:
    for key, array in arrays.items():
        place = items.add(key=key).value
        place.dtype, place.stype, place.data = array.dtype, array.stype, array.data
        place.shape.extend(array.shape)


def _read(items: Any) -> dict[str, Any]:
    """Return the values in the items of a protobuf record."""
    values = {}
    for item in items:
        place = item.value
        name = place.WhichOneof("value")
        value = getattr(place, name)
        values[item.key] = list(value.vals) if name in _LIST_NAMES else value
    return values


def _read_array(place: Any) -> Array:
    if place.stype == "numpy.ndarray":
        return make_array(place.dtype, tuple(place.shape), place.data)
    return Array(place.dtype, tuple(place.shape), place.stype, place.data)


_READERS: dict[str, Callable[[Any], Any]] = {
    "array_record": lambda item: fill(
        ArrayRecord, {entry.key: _read_array(entry.value) for entry in item.array_record.items}
    ),
    "metric_record": lambda item: fill(MetricRecord, _read(item.metric_record.items)),
    "config_record": lambda item: fill(ConfigRecord, _read(item.config_record.items)),
}
