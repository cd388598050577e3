"""Flower's messages: their records as bytes, whose they are, and the one that says that an app has failed."""

from flwr.app import Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

_APP_RAISED = 2  # Flower's code for an exception in a ClientApp


def identify(run: int, node: int) -> None:
    """Say whose messages this process makes, as Flower's own runtime does before it calls an app."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, node, 1


def records_to_bytes(records: RecordDict) -> bytes:
    """Serialise records with Flower's protobuf."""
    from flwr.common.serde import recorddict_to_proto

    data: bytes = recorddict_to_proto(records).SerializeToString(deterministic=True)
    return data


def records_from_bytes(data: bytes) -> RecordDict:
    """Read what :func:`records_to_bytes` wrote; ValueError if it did not write that."""
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict as Proto
    from google.protobuf.message import DecodeError

    try:
        proto = Proto()
        proto.ParseFromString(data)
        records: RecordDict = recorddict_from_proto(proto)
    except (DecodeError, TypeError, KeyError) as error:
        raise ValueError(f"not records: {error}") from None
    return records


def error_reply(reason: str, question: Message) -> Message:
    """Return the reply that tells the server that this node's app has failed."""
    return Message(Error(code=_APP_RAISED, reason=reason), reply_to=question)
