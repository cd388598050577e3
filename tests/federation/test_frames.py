"""Frames: what is written is read, and no bytes whatever do any harm."""

import contextlib
import json
import random
import struct

import numpy as np
import pytest

from psofed.federation.protocol.frames import (
    INSTRUCTION,
    REPLY,
    VERSION,
    FrameError,
    decode_frame,
    encode_frame,
    frame_sequence,
)
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.masks import DerivedMasks
from psofed.federation.protocol.messages import (
    FAILED,
    FULL,
    LEARNED,
    PART,
    START,
    Announcement,
    BadReplyError,
    ClientTask,
    Instruction,
    NodeReply,
    Reply,
    RunDescription,
    decode_instruction,
    decode_reply,
    encode_instruction,
    encode_reply,
)
from psofed.federation.protocol.names import is_client_name

pytestmark = pytest.mark.federation

MASKS = DerivedMasks(seed=3, dimension=5, num_shared=2)
LAYOUT = ModelLayout.of({"w": np.zeros(5)})
DOUBLE = np.dtype(np.float64)


def instruction(*tasks, **changes):
    given = {"session": "s", "round_number": 4, "node": "gate", "masks": MASKS, "digest": "d", "tasks": tasks}
    return Instruction(**(given | changes))


def reply(*replies, **changes):
    return NodeReply(**({"session": "s", "round_number": 4, "sequence": 9, "replies": replies} | changes))


def test_an_instruction_is_read_as_it_was_written():
    model, part = np.arange(5.0), np.array([1.0, -2.0])
    told = instruction(
        ClientTask("a", FULL, 0, model), ClientTask("b", PART, 3, part), ClientTask("c", START, 0, part + 1),
        sequence=77, epoch=2, layout=LAYOUT, refused=("x",), config={"rate": 0.5, "name": "µ", "on": True},
    )  # fmt: skip
    read = decode_instruction(encode_instruction(told))
    assert (read.session, read.round_number, read.sequence, read.epoch, read.node) == ("s", 4, 77, 2, "gate")
    assert (read.masks, read.layout, read.refused, read.config) == (MASKS, LAYOUT, ("x",), told.config)
    for mine, theirs in zip(read.tasks, told.tasks, strict=True):
        assert (mine.client, mine.kind, mine.expected) == (theirs.client, theirs.kind, theirs.expected)
        assert np.array_equal(mine.values, theirs.values)


def test_what_all_clients_get_travels_once():
    part = np.array([1.0, -2.0])
    together = encode_instruction(instruction(*(ClientTask(name, PART, 3, part) for name in "abc")))
    apart = encode_instruction(instruction(*(ClientTask(name, PART, 3, part.copy()) for name in "abc")))
    assert len(apart) - len(together) == 2 * part.nbytes - len(',"common":true')
    assert all(np.array_equal(task.values, part) for task in decode_instruction(together).tasks)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_reply_is_read_as_it_was_written(dtype):
    values = np.array([1.5, -0.25], dtype)
    told = reply(
        Reply(LEARNED, "a", values, 3, {"mse": 0.5, "squared-errors": [1.0]}), Reply(FAILED, "b", remark="disk")
    )
    read = decode_reply(encode_reply(told), 2, 2, np.dtype(dtype))
    assert frame_sequence(encode_reply(told), REPLY) == read.sequence == 9
    assert np.array_equal(read.replies[0].values, values)
    assert read.replies[0].values.dtype == dtype
    assert (read.replies[0].metrics, read.replies[1].remark) == (told.replies[0].metrics, "disk")


def test_values_are_little_endian_wherever_they_come_from():
    big = np.array([1.0, 2.0], ">f8")
    assert encode_frame(REPLY, 1, {}, [big])[-16:] == struct.pack("<dd", 1.0, 2.0)


def frame(header, body=b"", kind=REPLY):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sBBQI", b"psof", VERSION, kind, 9, len(text)) + text + body


GOOD = {
    "session": "s", "round": 4, "clients": [""], "statuses": ["learned"], "examples": [1],
    "metrics": [{}], "dtype": "float64",
}  # fmt: skip
BODY = np.zeros(2).tobytes()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "malformed"),
        (b"psof", "malformed"),
        (b"\x80\x04K\x01.", "malformed"),  # a pickle
        (b"PK\x03\x04" + bytes(40), "malformed"),
        (frame(b"[1]"), "malformed"),
        (frame(b"{" * 10_000), "malformed"),
        (frame(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "malformed"),
        (frame(b"\xff\xfe"), "malformed"),
        (frame(b'{"round":' + b"9" * 5000 + b"}"), "malformed"),
        (frame(GOOD, BODY, INSTRUCTION), "malformed"),
        (frame(GOOD, BODY).replace(b"psof\x04", b"psof\x03"), "malformed"),
        (struct.pack("<4sBBQI", b"psof", VERSION, REPLY, 9, 2**32 - 1) + b"{}", "malformed"),
        (frame(GOOD | {"padding": "x" * 300_000}, BODY), "malformed"),
        (frame(GOOD | {"round": True}, BODY), "malformed"),
        (frame(GOOD | {"round": 4.0}, BODY), "malformed"),
        (frame(GOOD | {"round": -1}, BODY), "malformed"),
        (frame(GOOD | {"clients": ["", ""], "statuses": ["learned"] * 2}, BODY), "malformed"),
        (frame(GOOD | {"clients": ["a", "b"], "statuses": ["lost"] * 2, "examples": [1] * 2, "metrics": [{}] * 2}),
         "malformed"),
        (frame(GOOD | {"clients": "a"}, BODY), "malformed"),
        (frame(GOOD | {"clients": [7]}, BODY), "malformed"),
        (frame(GOOD | {"statuses": ["boss"]}, BODY), "malformed"),
        (frame(GOOD | {"examples": ["1"]}, BODY), "malformed"),
        (frame(GOOD | {"metrics": [None]}, BODY), "malformed"),
        (frame(GOOD | {"remarks": []}, BODY), "malformed"),
        (frame(GOOD | {"dtype": "object"}, BODY), "malformed"),
        (frame(GOOD | {"dtype": ["float64"]}, BODY), "malformed"),
        (frame(GOOD | {"dtype": "float32"}, BODY), "wrong-dtype"),
        (frame(GOOD, BODY[:-1]), "wrong-length"),
        (frame(GOOD, BODY + b"0"), "wrong-length"),
        (frame(GOOD, b""), "wrong-length"),
    ],
)  # fmt: skip
def test_a_bad_reply_is_refused(data, kind):
    with pytest.raises(BadReplyError) as raised:
        decode_reply(data, 1, 2, DOUBLE)
    assert raised.value.kind == kind
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "metrics",
    [{"a": "text"}, {"a": None}, {"a": True}, {"a": [[1.0]]}, {"a": 2**70}, {"x" * 101: 1.0}, {"a": [0.0] * 5000}],
)
def test_bad_metrics_cost_their_client_alone(metrics):
    header = GOOD | {
        "clients": ["a", "b"], "statuses": ["learned", "lost"], "examples": [1, 0], "metrics": [{"mse": 1.0}, metrics],
    }  # fmt: skip
    read = decode_reply(frame(header, BODY), 2, 2, DOUBLE)
    assert [part.client for part in read.replies] == ["a"]
    assert list(read.refused) == ["b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"derivation": 99},
        {"dimension": 10**12},
        {"shared": 6},
        {"seed": -1},
        {"pattern": "mine"},
        {"kinds": ["steal"]},
        {"expected": [-1]},
        {"clients": [], "kinds": [], "expected": []},
        {"clients": ["\x1b[31m"]},
        {"session": "x" * 65},
        {"layout": "{}"},
        {"layout": '{"arrays":[["w",[100000000000],"float64"]],"private":[]}'},
        {"layout": '{"arrays":[["w",[5],"object"]],"private":[]}'},
        {"layout": '{"arrays":[["w",[5],"complex128"]],"private":[]}'},
        {"config": {"a": [1]}},
        {"config": []},
        {"refused": [None]},
        {"dtype": None},
    ],
)
def test_a_bad_instruction_is_refused(changes):
    good = encode_instruction(instruction(ClientTask("", PART, 3, np.zeros(2))))
    read = decode_frame(good, INSTRUCTION)
    with pytest.raises(ValueError, match=r"."):
        decode_instruction(frame({**read.header, **changes}, bytes(read.body), INSTRUCTION))


def test_cut_and_scrambled_frames_are_refused_or_read():
    generator = random.Random(1)
    told = encode_reply(reply(Reply(LEARNED, "", np.ones(2), 3, {"mse": 0.5})))
    asked = encode_instruction(instruction(ClientTask("", FULL, 0, np.ones(5)), layout=LAYOUT))
    for data in (told, asked):
        for _ in range(2000):
            changed = bytearray(data[: generator.randrange(len(data) + 1)] if generator.random() < 0.3 else data)
            for _ in range(generator.randrange(1, 4)):
                if changed:
                    changed[generator.randrange(len(changed))] = generator.randrange(256)
            for decode in (lambda d: decode_reply(d, 1, 2, DOUBLE), decode_instruction):
                with contextlib.suppress(ValueError):
                    decode(bytes(changed))


def test_a_claimed_size_takes_no_memory():
    with pytest.raises(BadReplyError, match="wrong-length"):
        decode_reply(frame(GOOD, BODY), 1, 10**15, DOUBLE)


def test_descriptions_and_announcements_are_read_as_they_were_written():
    run = RunDescription("s", {"scenario": "dimension = 5", "seed": 3})
    assert RunDescription.from_bytes(run.to_bytes()) == run
    for clients in (None, (), ("north", "süd")):
        assert Announcement.from_bytes(Announcement("s", clients, "disk").to_bytes()) == Announcement(
            "s", clients, "disk"
        )


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"psofed":3}', b'{"psofed":4,"clients":[""]}', b'{"psofed":4,"clients":["a","a"]}',
             b'{"psofed":4,"clients":{}}', b'{"psofed":4,"clients":["' + b"x" * (1 << 20) + b'"]}'],
)  # fmt: skip
def test_bad_announcements_are_refused(data):
    with pytest.raises(FrameError if not data.startswith(b'{"psofed":4,"clients":["') else ValueError):
        Announcement.from_bytes(data)
    with pytest.raises(ValueError, match=r"."):
        RunDescription.from_bytes(data)


def test_a_client_cannot_take_a_name_that_looks_like_another():
    assert is_client_name("süd")
    assert is_client_name("насос 7")
    assert not any(map(is_client_name, ["p\u0430mp", "su\u0308d", "\uff50ump", "pump\u200b", "pump\n"]))
