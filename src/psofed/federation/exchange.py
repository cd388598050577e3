"""Sending a round's messages and collecting the replies until a deadline, one by one.

Flower's ``send_and_receive`` polls every three seconds and pulls all replies in one go, so that one reply
which cannot be put together again takes the others with it. Here every reply is pulled by itself.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
from flwr.app import Message
from flwr.serverapp import Grid


@dataclass(frozen=True)
class Answers:
    """What came of a round's messages.

    Attributes
    ----------
    replies : list of Message
        All replies that arrived in time.
    unreadable : set of str
        Ids of messages whose reply could not be put together.
    """

    replies: list[Message] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)


def exchange(grid: Grid, messages: Sequence[Message], timeout: float, poll_interval: float = 0.25) -> Answers:
    """Push `messages` and pull their replies for at most `timeout` seconds."""
    answers = Answers()
    if not messages:
        return answers
    deadline = time.monotonic() + timeout
    waiting = {message_id for message_id in grid.push_messages(messages) if message_id}
    while waiting:
        for message_id in sorted(waiting):
            try:
                pulled = list(grid.pull_messages([message_id]))
            except (httpx.HTTPError, ConnectionError):
                raise  # the SuperLink is gone, which is no client's fault
            except Exception:
                # A client can send objects that fit no message; whatever that raises concerns it alone.
                answers.unreadable.add(message_id)
                waiting.discard(message_id)
                continue
            answers.replies.extend(pulled)
            if pulled:
                waiting.discard(message_id)
        remaining = deadline - time.monotonic()
        if not waiting or remaining <= 0:
            break
        time.sleep(min(poll_interval, remaining))
    return answers
