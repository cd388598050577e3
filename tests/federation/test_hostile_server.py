"""A hostile server can neither stop a node nor make it allocate without bound, and runs no code on it."""

import hashlib
import json
import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import make_hub, make_node, run

from psofed import Scenario
from psofed.common.errors import PsofedError
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.ready_made import prepare, ready_made_node
from psofed.federation.protocol.bounds import MAX_ROUND
from psofed.federation.protocol.frames import INSTRUCTION, REPLY, decode_frame, encode_frame
from psofed.federation.protocol.messages import Announcement, RunDescription, decode_instruction
from psofed.federation.protocol.run_settings import RunSettings

pytestmark = pytest.mark.federation


@pytest.fixture(autouse=True)
def little_memory():
    """Let an allocation beyond 8 GB fail at once, rather than bring this machine down."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def honest():
    """A node that has worked in one round, and its instruction."""
    hub = make_hub(["pump"])
    run(hub, 1)
    return hub.nodes["pump"], hub.sent[0][1]


def changed(frame, **fields):
    sequence, header, body = decode_frame(frame, INSTRUCTION)
    return encode_frame(INSTRUCTION, sequence, {**header, **fields}, [np.frombuffer(body, "u1")])


def unshared(frame, shape, dtype="float64"):
    """Let the layout have an array besides, which is not shared."""
    layout = json.loads(decode_frame(frame, INSTRUCTION).header["layout"])
    layout["arrays"].append(["private", shape, dtype])
    layout["private"].append("private")
    text = json.dumps(layout, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return changed(frame, layout=text, digest=digest, round=9)


HOSTILE = {
    "round 2^62": lambda frame: changed(frame, round=2**62),
    "a negative round": lambda frame: changed(frame, round=-1),
    "three billion unshared entries": lambda frame: unshared(frame, [3_000_000_000]),
    "an empty array with a side of a quintillion": lambda frame: unshared(frame, [0, 10**18]),
    "an array of strings of two gigabytes": lambda frame: unshared(frame, [1], "S2000000000"),
    "D = 2e8": lambda frame: changed(frame, dimension=200_000_000),
    "another node": lambda frame: changed(frame, node="valve"),
    "another session": lambda frame: changed(frame, session="mine"),
    "a header of 4 GB": lambda frame: frame[:14] + b"\xff" * 4 + frame[18:],
    "a reply": lambda frame: frame[:5] + bytes([REPLY]) + frame[6:],
    "nothing": lambda frame: b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_instruction_beyond_all_bounds_is_ignored(honest, caplog, name):
    node, frame = honest
    assert node.answer(HOSTILE[name](frame)) is None
    (line,) = [message for message in caplog.messages if "ignored" in message]
    assert len(line) < 300
    assert decode_frame(node.answer(frame), REPLY).header["statuses"] == ["learned"]


@given(number=st.one_of(st.integers(MAX_ROUND + 1, 2**63 - 1), st.integers(-(2**63), 0)))
def test_no_round_number_beyond_all_bounds_is_read(number):
    with pytest.raises(ValueError, match=r"derivation|version|round"):
        decode_instruction(encode_frame(INSTRUCTION, 1, {"round": number}))


def test_a_node_takes_models_as_large_as_it_says(honest):
    _, frame = honest
    small = make_node("pump")
    small._max_entries = 5
    small.begin(RunDescription(decode_instruction(frame).session, {}).to_bytes())
    assert small.answer(frame) is None


@pytest.mark.parametrize(
    "scenario",
    [Scenario(num_clients=10**9, dimension=4), Scenario(num_clients=4, dimension=10**8, num_participants=2)],
    ids=["many clients", "many parameters"],
)
def test_a_synthetic_fleet_beyond_all_bounds_is_refused(scenario):
    described = RunDescription("s", RunSettings(scenario=scenario, synthetic=True).to_mapping())
    with pytest.raises(PsofedError, match="a node takes at most"):
        prepare(described, NodeOptions())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scenario": 7},
        {"scenario": "num_clients = ["},
        {"scenario": "", "seed": "one"},
        {"scenario": "", "data": "/etc/passwd"},
        {"scenario": "[" * 100_000},
        {"scenario": 'aggregation = "no such rule"\n[learner]\nkind = "os.system"'},
    ],
    ids=str,
)
def test_a_run_that_makes_no_sense_is_a_problem_that_the_node_announces(settings):
    node = ready_made_node("pump", NodeOptions())
    node.begin(RunDescription("s", settings).to_bytes())
    told = Announcement.from_bytes(node.announcement())
    assert (told.session, told.clients) == ("s", None)
    assert 0 < len(told.problem) <= 200
    node.tend()
    node.begin(b"nonsense")
    assert Announcement.from_bytes(node.announcement()) == told
