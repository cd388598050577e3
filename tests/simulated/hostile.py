"""What Byzantine nodes and clients send, and what the other hands of a forger send beside its honest replies."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from plans import LYING
from simulated_broker import IN, MAX_FRAME, OUT, PRESENCE, Broker, Topic

from psofed.federation.protocol.frames import INSTRUCTION, REPLY, decode_frame, encode_frame
from psofed.federation.protocol.messages import (
    LEARNED,
    Announcement,
    RunDescription,
    decode_instruction,
    encode_instruction,
)
from psofed.federation.transport.hub import RUN


def forge(
    kind: str, broker: Broker, name: str, asked: dict[str, int], instruction: bytes, sent: list[bytes], random: Random
) -> None:
    """Send what no honest node would send.

    Parameters
    ----------
    kind : str
        One of `plans.HOSTILE`.
    name : str
        The forger.
    asked : dict
        Honest nodes and their questions of this round, whose numbers are easy to guess: they are consecutive.
    instruction : bytes
        The last instruction that the forger got.
    sent : list of bytes
        Its last replies.
    """

    def publish(topic: Topic, payload: bytes) -> None:
        broker.publish(name, topic, payload)

    last, own = sent[-1], decode_frame(instruction, INSTRUCTION).sequence
    victim = random.choice(list(asked))

    def lie(sequence: int) -> bytes:
        return change_reply(last, lambda values: np.full_like(values, 777.0), sequence, clients=[""])

    actions: dict[str, Callable[[], Any]] = {
        "replay": lambda: [publish((OUT, name), frame) for frame in sent[-4:]],
        "flood": lambda: [publish((OUT, name), b"x" * random.randint(1, 100)) for _ in range(50)],
        "replies to nothing": lambda: [
            publish((OUT, name), change_reply(last, sequence=random.getrandbits(60))) for _ in range(5)
        ],
        "answers for another": lambda: [publish((OUT, name), lie(number)) for number in asked.values()],
        "own reply garbage": lambda: [publish((OUT, name), b"garbage" * k) for k in (1, MAX_FRAME)],
        "own reply twice": lambda: [publish((OUT, name), frame) for frame in (lie(own), last)],
        "own presence garbage": lambda: publish((PRESENCE, name), b"0" * 32 + b"[" * random.randint(0, 50)),
        "forged reply": lambda: publish((OUT, victim), lie(asked[victim])),
        "forged presence": lambda: publish(
            (PRESENCE, victim), random.choice((b"", b"1" * 32 + Announcement("other").to_bytes()))
        ),
        "forged instruction": lambda: publish((IN, victim), _forged_instruction(instruction, victim)),
        "forged run": lambda: publish((RUN, ""), RunDescription("other", {}).to_bytes()),
    }
    actions[kind]()


def _forged_instruction(frame: bytes, victim: str) -> bytes:
    heard = decode_instruction(frame)
    (task, *_) = heard.tasks
    assert task.values is not None
    lie = replace(task, client="", values=np.full_like(task.values, 777.0))
    return encode_instruction(replace(heard, node=victim, round_number=heard.round_number + 1, tasks=(lie,)))


def change_reply(
    frame: bytes, values: Callable[[Any], Any] = lambda sent: sent, sequence: int | None = None, **fields: Any
) -> bytes:
    """Return a reply with another sequence number, other header fields and other values."""
    before, header, body = decode_frame(frame, REPLY)
    sent = np.asarray(values(np.frombuffer(body, np.float64).copy()))
    return encode_frame(REPLY, before if sequence is None else sequence, {**header, **fields}, [sent])


def spoil(kind: str, frame: bytes) -> bytes:
    """Return a reply that must not count."""
    _, header, body = decode_frame(frame, REPLY)
    if kind == "garbage" or not body:
        return b"garbage"
    if kind in ("nan", "infinite"):
        return change_reply(frame, lambda sent: sent * (np.nan if kind == "nan" else np.inf))
    if kind == "short":
        return change_reply(frame, lambda sent: sent[:-1])
    return change_reply(
        frame,
        **{
            "stale": {"round": header["round"] - 1},
            "foreign session": {"session": "another"},
            "boasting": {"examples": [-5] * len(header["examples"])},
        }[kind],
    )


def spoil_client(kind: str, frame: bytes) -> bytes:
    """Return a gateway's reply in which the clients that lie do so, and nothing else is changed."""
    header = decode_frame(frame, REPLY).header
    lies = [name.endswith(LYING) for name in header["clients"]]
    if not any(lies):
        return frame
    if kind == "boasting":
        examples = [-5 if is_lie else count for is_lie, count in zip(lies, header["examples"], strict=True)]
        return change_reply(frame, examples=examples)
    learned = [is_lie for is_lie, status in zip(lies, header["statuses"], strict=True) if status == LEARNED]

    def lie(sent: Any) -> Any:
        rows = sent.reshape(len(learned), -1)
        rows[np.array(learned, bool)] = np.nan if kind == "nan" else np.inf
        return rows.reshape(-1)

    return change_reply(frame, lie) if learned else frame
