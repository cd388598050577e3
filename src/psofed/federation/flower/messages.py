"""Flower's messages: their sender, and the reply that reports a failed app."""

from flwr.app import Error, Message
from flwr.supercore.task_identity import TaskIdentity

_APP_RAISED = 2  # Flower's code for an exception in a ClientApp


def identify(run: int, node: int) -> None:
    """Set the sender of this process's messages, as Flower's own runtime does before it calls an app."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, node, 1


def error_reply(reason: str, question: Message) -> Message:
    """Return the reply that tells the server that this node's app has failed."""
    return Message(Error(code=_APP_RAISED, reason=reason), reply_to=question)
