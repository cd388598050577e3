"""Content of messages: instructions from the server, replies from a client, and nothing else.

One record of settings named ``psofed`` and one array named ``values``: each further array would cost
Flower several requests. Decoding trusts nothing: whatever arrives is either a value of the types below or
an error that says what is wrong with it.
"""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from psofed.federation.protocol.bounds import MAX_ENTRIES, MAX_ROUND
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.few_bits import draw_dither, pack_levels, packed_size, step_of, unpack_levels
from psofed.federation.protocol.layout import ModelLayout, Vector
from psofed.federation.protocol.masks import DERIVATION, DerivedMasks

FORMAT = 2
"""Version of the wire format."""

ARRAYS, SETTINGS, METRICS, CONFIG = "arrays", "psofed", "metrics", "config"
VALUES = "values"

PART = "part"  # values hold the M entries of S_{k,n}
START = "start"  # likewise, for a client that starts from zero, as the paper's do
FULL = "full"  # values hold all D entries
SYNC = "sync"  # likewise, and the client takes them all, whatever it had
EVALUATE = "evaluate"  # no values: the client evaluates its own model
DESCRIBE = "describe"  # no values: the client names the columns of its data, and learns nothing
KINDS = (PART, START, FULL, SYNC, EVALUATE, DESCRIBE)

LEARNED, LOST, DESCRIBED = "learned", "lost", "described"

_NPY_HEADER_LIMIT = 1024
_MAX_METRICS, _MAX_METRIC_NAME, _MAX_METRIC_VALUES, _MAX_REMARK = 100, 100, 4096, 200


class BadReplyError(ValueError):
    """A reply that must be dropped.

    Parameters
    ----------
    kind : str
        One of :data:`psofed.federation.server.checks.KINDS`.
    detail : str
        What was wrong; a client's own words may be in it, so it is cut to one short line.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        detail = clean_text(detail)
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, eq=False, kw_only=True)
class Instruction:
    """From the server to one participant.

    Attributes
    ----------
    session : str
        Names the federation across restarts of the server (Flower's run id does not).
    round_number : int
        n, from 1.
    epoch : int
        See :class:`psofed.federation.server.checkpoint.ServerState`.
    node : int
        The number by which the server draws this client's masks.
    kind : str
        :data:`PART`, :data:`START`, :data:`FULL`, :data:`SYNC`, :data:`EVALUATE` or :data:`DESCRIBE`.
    expected : int
        The last round the server has accepted from this client, 0 if none. A client whose own state is
        older has lost it.
    masks : DerivedMasks
        Seed, D, M and pattern, from which the client derives S_{k,n} and S_{k,n+1}.
    digest : str
        Of the model's layout, the names of its columns included.
    layout : ModelLayout or None
        The layout itself, for a client that may not know it.
    values : array (M,) or (D,) or None
        See `kind`.
    """

    session: str
    round_number: int
    epoch: int = 0
    node: int
    kind: str
    expected: int
    masks: DerivedMasks
    digest: str
    layout: ModelLayout | None = None
    values: Vector | None = None


@dataclass(frozen=True, eq=False)
class FewBits:
    """An upload of few bits per value: level j stands for (j + ½) Δ − reach, Δ = 2 · reach / 2^bits.

    Attributes
    ----------
    levels : uint64 array (M,)
        j.
    bits, reach
        As of the channel ``quantised``.
    is_dithered : bool
        Whether the server subtracts a dither that it derives from session, node and round.
    """

    levels: NDArray[np.uint64]
    bits: int
    reach: float
    is_dithered: bool

    def values(self, session: str, node: int, round_number: int) -> NDArray[np.float64]:
        """Return the values (M,) that arrive."""
        step = step_of(self.bits, self.reach)
        values = (self.levels + 0.5) * step - self.reach
        if self.is_dithered:
            values = values - (draw_dither(session, node, round_number, values.size) - 0.5) * step
        return np.asarray(values, np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reply:
    """From a participant to the server.

    Attributes
    ----------
    session, round_number, node
        Of the instruction it answers.
    status : str
        :data:`LEARNED`, :data:`LOST` if the client needs the full model first, or :data:`DESCRIBED`.
    digest : str
        Of the layout that the client has learned with.
    columns : ColumnNames or None
        Of a client that was asked for them; None if its columns have no names.
    values : array (M,) or None
        The entries of S_{k,n+1}.
    few_bits : FewBits or None
        How they travel, if not as numbers of the model's type.
    num_examples : int
        Samples the client worked through.
    metrics : mapping
        Whatever else the client's training reported.
    remark : str
        What a person should know, say that there was nothing to learn from; at most 200 characters.
    """

    session: str
    round_number: int
    node: int = 0
    status: str
    digest: str = ""
    columns: ColumnNames | None = None
    values: Vector | None = None
    few_bits: FewBits | None = None
    num_examples: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""

    @property
    def payload(self) -> int:
        """Bytes of the values on their way."""
        if self.values is None:
            return 0
        return packed_size(self.few_bits.bits, self.values.size) if self.few_bits else self.values.nbytes


def encode_instruction(instruction: Instruction, config: ConfigRecord | None = None) -> RecordDict:
    """Return the message content; `config` goes to the user's training function unchanged."""
    masks = instruction.masks
    settings: dict[str, Any] = {
        "format": FORMAT,
        "session": instruction.session,
        "round": instruction.round_number,
        "epoch": instruction.epoch,
        "node": str(instruction.node),  # 64 bits without a sign, which Flower's integers have not
        "kind": instruction.kind,
        "expected": instruction.expected,
        "seed": masks.seed,
        "dimension": masks.dimension,
        "shared": masks.num_shared,
        "pattern": masks.pattern,
        "coordinated": masks.coordinated,
        "derivation": masks.derivation,
        "digest": instruction.digest,
    }
    if instruction.layout is not None:
        settings["layout"] = instruction.layout.to_text()
    content = RecordDict({SETTINGS: ConfigRecord(settings)})
    if instruction.values is not None:
        content[ARRAYS] = ArrayRecord({VALUES: Array(np.ascontiguousarray(instruction.values))})
    if config:
        content[CONFIG] = config
    return content


def decode_instruction(content: RecordDict, max_entries: int = MAX_ENTRIES) -> Instruction:
    """Read an instruction; ValueError says what is wrong with it.

    Nothing is allocated for a model of more than `max_entries` entries, shared or not.
    """
    settings = content.get(SETTINGS)
    if not isinstance(settings, ConfigRecord):
        raise ValueError("the message is not from psofed's strategy: it has no settings record")
    if settings.get("format") != FORMAT:
        spoken = settings.get("format")
        raise ValueError(f"the server speaks format {spoken!r}, this psofed {FORMAT}: update the older one")
    if settings.get("derivation") != DERIVATION:
        version = settings.get("derivation")
        raise ValueError(f"the server derives masks by version {version!r}, this psofed by {DERIVATION}")
    kind = _text(settings, "kind")
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is not one of {', '.join(KINDS)}")
    masks = DerivedMasks(
        seed=_integer(settings, "seed"),
        dimension=_integer(settings, "dimension"),
        num_shared=_integer(settings, "shared"),
        pattern=_text(settings, "pattern"),
        coordinated=settings.get("coordinated") is True,
    )
    layout = ModelLayout.from_text(_text(settings, "layout")) if "layout" in settings else None
    entries = max(masks.dimension, 0 if layout is None else layout.entries)
    if entries > max_entries:
        raise ValueError(
            f"the server's model has {entries:,} entries; this client takes at most {max_entries:,}"
        )
    values = None
    if kind not in (EVALUATE, DESCRIBE):
        length = masks.dimension if kind in (FULL, SYNC) else masks.num_shared
        record = content.get(ARRAYS)
        if not isinstance(record, ArrayRecord) or list(record) != [VALUES]:
            raise ValueError("the message has no values")
        values = decode_array(record[VALUES], length, np.dtype(record[VALUES].dtype))
    return Instruction(
        session=_text(settings, "session"),
        round_number=_integer(settings, "round", 1, MAX_ROUND),
        epoch=_integer(settings, "epoch", 0, MAX_ROUND),
        node=_number(settings, "node"),
        kind=kind,
        expected=_integer(settings, "expected", 0, MAX_ROUND),
        masks=masks,
        digest=_text(settings, "digest"),
        layout=layout,
        values=values,
    )


def encode_reply(reply: Reply) -> RecordDict:
    """Return the message content of a reply."""
    settings: dict[str, Any] = {
        "format": FORMAT,
        "session": reply.session,
        "round": reply.round_number,
        "node": str(reply.node),
        "status": reply.status,
    }
    if reply.digest:
        settings["digest"] = reply.digest
    if reply.columns is not None:
        settings["columns"] = reply.columns.to_text()
    if reply.remark:
        settings["remark"] = reply.remark[:_MAX_REMARK]
    if reply.few_bits is not None:
        few_bits = reply.few_bits
        settings |= {"bits": few_bits.bits, "reach": few_bits.reach, "dithered": few_bits.is_dithered}
        packed = Array(pack_levels(few_bits.levels, few_bits.bits))
        content = RecordDict({SETTINGS: ConfigRecord(settings), ARRAYS: ArrayRecord({VALUES: packed})})
    else:
        content = RecordDict({SETTINGS: ConfigRecord(settings)})
    if reply.values is not None and reply.few_bits is None:
        content[ARRAYS] = ArrayRecord({VALUES: Array(np.ascontiguousarray(reply.values))})
    metrics: dict[str, Any] = dict(reply.metrics)
    content[METRICS] = MetricRecord({**metrics, "num-examples": reply.num_examples})
    return content


def decode_reply(content: RecordDict, length: int, dtype: np.dtype[Any]) -> Reply:
    """Read a reply that should hold `length` values of `dtype`; BadReplyError says what is wrong with it.

    Only the form is judged here; :mod:`psofed.federation.server.checks` judges the content.
    """
    settings = content.get(SETTINGS)
    if not isinstance(settings, ConfigRecord):
        raise BadReplyError("malformed", "no settings record")
    if settings.get("format") != FORMAT:
        raise BadReplyError("malformed", f"format {settings.get('format')!r}")
    try:
        session, status = _text(settings, "session"), _text(settings, "status")
        round_number = _integer(settings, "round")
        digest = _text(settings, "digest") if "digest" in settings else ""
        columns = ColumnNames.from_text(_text(settings, "columns")) if "columns" in settings else None
    except ValueError as error:
        raise BadReplyError("malformed", str(error)) from None
    if status not in (LEARNED, LOST, DESCRIBED):
        raise BadReplyError("malformed", f"status {status[:40]!r}")
    if status == DESCRIBED:
        remark = clean_text(settings.get("remark", ""))
        return Reply(
            session=session, round_number=round_number, status=status, columns=columns, remark=remark
        )
    if status == LOST:
        return Reply(session=session, round_number=round_number, status=status)
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord):
        raise BadReplyError("malformed", "no arrays record")
    if list(record) != [VALUES]:
        raise BadReplyError("wrong-key", f"arrays {[str(key)[:40] for key in record][:3]}")
    metrics = decode_metrics(content)
    num_examples = _num_examples(metrics.pop("num-examples", None))
    return Reply(
        session=session,
        round_number=round_number,
        status=status,
        digest=digest,
        **_decode_values(settings, record[VALUES], length, dtype),
        num_examples=num_examples,
        metrics=metrics,
        remark=clean_text(settings.get("remark", "")),
    )


def _decode_values(settings: ConfigRecord, array: Array, length: int, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the fields `values` and `few_bits` of a reply."""
    if "bits" not in settings:
        return {"values": decode_array(array, length, dtype)}
    try:
        bits, round_number = _integer(settings, "bits", 1, 32), _integer(settings, "round", 1, MAX_ROUND)
        session, node = _text(settings, "session"), _number(settings, "node")
    except ValueError as error:
        raise BadReplyError("malformed", str(error)) from None
    reach, is_dithered = settings.get("reach"), settings.get("dithered")
    if not isinstance(reach, int | float) or isinstance(reach, bool) or not 0 < reach < 1e150:
        raise BadReplyError("malformed", "reach is not a number above 0")
    if not isinstance(is_dithered, bool):
        raise BadReplyError("malformed", "dithered is neither true nor false")
    data = decode_array(array, packed_size(bits, length), np.dtype(np.uint8))
    few_bits = FewBits(unpack_levels(data, bits, length), bits, float(reach), is_dithered)
    values = few_bits.values(session, node, round_number)
    return {"values": values.astype(dtype), "few_bits": few_bits}


def clean_text(text: Any) -> str:
    """Return what a client says as one short line that cannot do anything to a terminal."""
    kept = "".join(character for character in str(text)[: 4 * _MAX_REMARK] if character.isprintable())
    return kept[:_MAX_REMARK]


def decode_array(array: Array, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the one-dimensional array of `length` values of `dtype` that `array` must hold.

    The header is read and compared before any memory is taken, so that neither a claimed size of a
    petabyte nor a pickle gets anywhere.
    """
    data = array.data
    if not isinstance(data, bytes):
        raise BadReplyError("malformed", "no bytes")
    stream = io.BytesIO(data[:_NPY_HEADER_LIMIT])
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise BadReplyError("malformed", "not a NumPy array of format 1.0")
        shape, _, found = np.lib.format.read_array_header_1_0(stream, max_header_size=_NPY_HEADER_LIMIT)
    except BadReplyError:
        raise
    except Exception as error:
        # NumPy's reader raises whatever its parser stumbles over.
        raise BadReplyError("malformed", f"unreadable array: {type(error).__name__}") from None
    if found != dtype:
        raise BadReplyError("wrong-dtype", f"{found} for {dtype}")
    body = len(data) - stream.tell()
    if shape != (length,) or body != length * dtype.itemsize:
        raise BadReplyError("wrong-length", f"shape {shape}, {body} bytes, for {length} values")
    return np.frombuffer(data, dtype=dtype, count=length, offset=stream.tell())


def decode_metrics(content: RecordDict) -> dict[str, Any]:
    """Return what a client reports, or raise BadReplyError if it would fill the server's disk."""
    record = content.get(METRICS)
    if not isinstance(record, MetricRecord):
        raise BadReplyError("malformed", "no metrics record")
    metrics = dict(record)
    longest = max(map(len, metrics), default=0)
    values = sum(len(value) if isinstance(value, list) else 1 for value in metrics.values())
    if len(metrics) > _MAX_METRICS or longest > _MAX_METRIC_NAME or values > _MAX_METRIC_VALUES:
        raise BadReplyError("malformed", "too many metrics, or too long ones")
    return metrics


def _num_examples(num_examples: Any) -> int:
    # Flower has no integer of its own: some clients count in floats.
    if isinstance(num_examples, float) and math.isfinite(num_examples) and num_examples.is_integer():
        num_examples = int(num_examples)
    if isinstance(num_examples, bool) or not isinstance(num_examples, int):
        raise BadReplyError("malformed", "num-examples is not a whole number")
    return num_examples


def _integer(settings: ConfigRecord, name: str, low: float = -math.inf, high: float = math.inf) -> int:
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is not a whole number")
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}, not between {low} and {high}")
    return value


def _number(settings: ConfigRecord, name: str) -> int:
    text = _text(settings, name)
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) >= 1 << 64:
        raise ValueError(f"{name} is not a number of 64 bits")
    return int(text)


def _text(settings: ConfigRecord, name: str) -> str:
    value = settings.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    return value
