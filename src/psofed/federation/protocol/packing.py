"""Fewer requests: all records of a message packed into one.

Flower sends every record and every array of a message as an object of its own, with a request each. Packed into one
record they are three objects instead of about seven, and a round is more than twice as fast. Packing happens in the
transport, below all mods: a mod sees the records as they are. The server packs for those nodes that pack their own
replies, so a stock SuperNode, which does not, is sent plain messages. A node whose packed replies offer it is sent
messages that carry their content (:mod:`psofed.federation.flower.inline`), and answers those alike.
"""

from flwr.app import ConfigRecord, RecordDict

from psofed.federation.flower import INLINE_BYTES, records_from_bytes, records_to_bytes

PACKED = "psofed.packed"
_RECORDS, _INLINE = "records", "inline"
_LARGEST = INLINE_BYTES  # beyond this Flower's own chunks are better


def pack(content: RecordDict, offer_inline: bool = False) -> RecordDict:
    """Return `content` packed into one record, or as it is if it is large.

    With `offer_inline` the record says that its sender reads messages that carry their content.

    Examples
    --------
    >>> packed = pack(RecordDict({"a": ConfigRecord({"n": 1}), "b": ConfigRecord({"n": 2})}))
    >>> list(packed), list(unpack(packed))
    (['psofed.packed'], ['a', 'b'])
    """
    data = records_to_bytes(content)
    if len(data) > _LARGEST:
        return content
    packed = ConfigRecord({_RECORDS: data})
    if offer_inline:
        packed[_INLINE] = True
    return RecordDict({PACKED: packed})


def offers_inline(content: RecordDict) -> bool:
    """Whether the sender of packed `content` reads messages that carry their content."""
    return is_packed(content) and content[PACKED].get(_INLINE) is True


def is_packed(content: RecordDict) -> bool:
    """Whether `content` was made by :func:`pack`."""
    return list(content) == [PACKED]


def unpack(content: RecordDict) -> RecordDict:
    """Return the records in packed `content`, or `content` itself; ValueError if they cannot be read."""
    if not is_packed(content):
        return content
    record = content[PACKED]
    data = record.get(_RECORDS) if isinstance(record, ConfigRecord) else None
    if not isinstance(data, bytes) or len(data) > _LARGEST:
        raise ValueError("a packed message without its records")
    return records_from_bytes(data)
