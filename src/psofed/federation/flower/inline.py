"""Messages that carry their content: one request instead of a request for every object.

Flower sends a message as an announcement and its content as objects, each with a request to store it, one to fetch it
and one to delete the whole. A small message can carry its content in the announcement itself, with an object tree
whose only id is the message's own. Server and nodes agree on it message by message, so a stock SuperNode is never sent
one.

Flower's object store, which compares objects with their ids, never sees such content. So the id is a SHA-256 of the
message's metadata and content, and whoever receives the message compares the two: the front door, the exchange, and the
node. The content has one form only: one record with one value, which is bytes.
"""

from hashlib import sha256
from typing import Any

from flwr.app import Message

from psofed.federation.flower.trees import BadTreeError

INLINE_BYTES = 1 << 20
"""Bytes of the longest content that travels within its message."""

_AROUND = 256  # bytes of names and lengths around it


def is_inline(proto: Any) -> bool:
    """Whether a protobuf message carries its content."""
    return bool(proto.content.ByteSize())


def write_inline(message: Message) -> tuple[Any, Any]:
    """Return a message with its content, and its object tree, as protobuf; the message gets its id."""
    from flwr.common.serde import message_to_proto
    from flwr.proto.message_pb2 import ObjectTree

    proto = message_to_proto(message)
    proto.metadata.message_id = inline_id(proto)
    message.metadata.__dict__["_message_id"] = proto.metadata.message_id
    return proto, ObjectTree(object_id=proto.metadata.message_id)


def check_inline(proto: Any, tree: Any) -> None:
    """Raise BadTreeError unless `proto` and `tree` are what :func:`write_inline` makes.

    Nothing but the lengths and the hash depend on how long the content is.
    """
    if proto.HasField("error"):
        raise BadTreeError("a message with both content and error")
    if tree.object_id != proto.metadata.message_id or tree.children:
        raise BadTreeError("a message that carries its content and announces objects as well")
    if proto.content.ByteSize() > INLINE_BYTES + _AROUND:
        raise BadTreeError(f"content of more than {INLINE_BYTES} bytes within a message")
    records = proto.content.items
    values: Any = records[0].config_record.items if len(records) == 1 else ()
    if len(values) != 1 or values[0].value.WhichOneof("value") != "bytes":
        raise BadTreeError("content that is not one record with one value of bytes")
    if inline_id(proto) != proto.metadata.message_id:
        raise BadTreeError("a message that does not match its id")


def read_inline(proto: Any, tree: Any) -> Message:
    """Return the message in `proto`, or raise BadTreeError as :func:`check_inline` does."""
    from flwr.common.serde import message_from_proto

    check_inline(proto, tree)
    try:
        message: Message = message_from_proto(proto)
    except Exception as error:  # Flower's readers raise whatever they stumble over
        raise BadTreeError(f"content that cannot be read ({type(error).__name__})") from None
    return message


def inline_id(proto: Any) -> str:
    """Return the id that a message with this metadata and content must have."""
    about = type(proto.metadata)()
    about.CopyFrom(proto.metadata)
    about.message_id = ""
    head = about.SerializeToString(deterministic=True)
    content = proto.content.SerializeToString(deterministic=True)
    return sha256(b"psofed inline %d %d\n" % (len(head), len(content)) + head + content).hexdigest()
