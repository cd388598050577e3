"""The loop of a node over its link: receive, answer, announce, and learn from what arrives meanwhile."""

import threading

from psofed.common.scheduler import scheduler
from psofed.federation.client.node import Node
from psofed.federation.transport.hub import INSTRUCTION, RUN, Link

TEND_EVERY = 0.2  # seconds


def serve(node: Node, link: Link, ended: threading.Event) -> None:
    """Work until `ended` is set; nothing that a server sends ends a node."""
    announced, tended = b"", -TEND_EVERY
    try:
        while not ended.is_set():
            arrival = link.receive(TEND_EVERY)
            if arrival is not None and arrival.kind == RUN:
                node.begin(arrival.body)
                tended = -TEND_EVERY  # announce it at once
            elif arrival is not None and arrival.kind == INSTRUCTION:
                reply = node.answer(arrival.body)
                if reply is not None:
                    link.send(reply)
            now = scheduler().monotonic()
            if now - tended >= TEND_EVERY:
                tended = now
                node.tend()
                body = node.announcement()
                if body != announced:
                    announced = body
                    link.announce(body)
    finally:
        link.close()
