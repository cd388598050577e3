"""A long-lived node facing a server that means harm: whatever arrives is refused in one line, and the node lives."""

import contextlib
import gzip
import hashlib
import http.server
import io
import json
import resource
import ssl
import threading
import time
import zipfile

import calls
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.common.serde import message_to_proto
from flwr.proto.fab_pb2 import Fab, GetFabResponse
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse, PushObjectResponse
from flwr.proto.run_pb2 import GetRunResponse, Run
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from hypothesis import given
from hypothesis import strategies as st

from psofed import Scenario
from psofed.common.errors import PsofedError
from psofed.federation import partial_sharing
from psofed.federation.deploy.app import ReadyMadeApp
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.node import LongLivedNode
from psofed.federation.deploy.processes import wait_until
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.flower import BadTreeError, identify, number_of_key, public_key_of
from psofed.federation.flower.inline import INLINE_BYTES, check_inline, write_inline
from psofed.federation.flower.trees import collect_message
from psofed.federation.protocol.bounds import MAX_ENTRIES, MAX_ROUND, check_scenario
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.masks import DerivedMasks
from psofed.federation.protocol.packing import pack
from psofed.federation.protocol.wire import (
    START,
    ClientTask,
    Instruction,
    decode_instruction,
    encode_instruction,
)

pytestmark = [pytest.mark.federation, pytest.mark.takes(25)]

NODE_ID, RUN_ID = 77, 5
SETTINGS = RunSettings(scenario=Scenario(num_clients=4, dimension=4, num_participants=2), synthetic=True)


def bundle(config=None, padding=0):
    """Return an app bundle with a run's configuration."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in (config or SETTINGS.to_config()).items()]
    text = (
        '[project]\nname = "a"\nversion = "1.0.0"\n[tool.flwr.app]\npublisher = "p"\n[tool.flwr.app.components]\n'
        'serverapp = "a:b"\nclientapp = "a:b"\n[tool.flwr.app.config]\n'
        + "\n".join(lines)
        + "\n#"
        + "x" * padding
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", text)
    return stream.getvalue()


class HostileServer(http.server.BaseHTTPRequestHandler):
    """Hands a node the test's messages, one after the other, and takes its replies."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer, headers = self.server.answer(self.path.rsplit("/", 1)[1], body)
        self.send_response(200)
        for name, value in ({"Content-Length": len(answer)} | headers).items():
            self.send_header(name, str(value))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Machine(http.server.ThreadingHTTPServer):
    """A hostile server and the node that works for it, in a thread."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), HostileServer)
        credentials = make_credentials(folder / "credentials", [], ["pump-1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(credentials.certificate, credentials.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.number = number_of_key(public_key_of(credentials.folder / "pump-1.pub"))
        self.queue, self.objects, self.replies, self.said = [], {}, [], []
        self.fab = bundle()
        self.run_id = RUN_ID
        self.tampered = {}
        self.announced = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        node = LongLivedNode(
            f"127.0.0.1:{self.server_address[1]}",
            credentials.node_key("pump-1"),
            credentials.authority,
            folder / "node",
            {"partition": 0},
            ReadyMadeApp(),
            self.said.append,
        )
        self.node = threading.Thread(target=node.run, daemon=True)
        self.node.start()

    def answer(self, call, body):
        headers = {}
        if call in self.tampered:
            return self.tampered.pop(call)
        if call == "pull-messages":
            if not self.queue:
                time.sleep(0.05)
            return (self.queue.pop(0) if self.queue else PullMessagesResponse()).SerializeToString(), headers
        if call == "pull-object":
            wanted = PullObjectRequest.FromString(body).object_id
            content = self.objects.get(wanted)
            found = content is not None
            return PullObjectResponse(
                object_found=found or wanted in self.announced,
                object_available=found,
                object_content=content or b"",
            ).SerializeToString(), headers
        if call == "push-messages":
            (message,) = PushMessagesRequest.FromString(body).messages_list
            self.replies.append(message)
        made = {
            "activate-node": ActivateNodeResponse(node_id=NODE_ID),
            "send-node-heartbeat": SendNodeHeartbeatResponse(success=True),
            "get-run": GetRunResponse(run=Run(run_id=self.run_id, fab_hash="a" * 64)),
            "get-fab": GetFabResponse(fab=Fab(hash_str="a" * 64, content=self.fab)),
            "push-messages": PushMessagesResponse(session_id=calls.SESSION),
            "push-object": PushObjectResponse(stored=True),
        }
        return (made[call].SerializeToString() if call in made else b""), headers

    def instruct(self, change=None, objects=None, tree=None, inline=None, sent=True, **metadata):
        """Send the node an instruction for round 1, changed as the test wants."""
        layout = ModelLayout.of(ArrayRecord([np.zeros(4)]))
        instruction = Instruction(
            session="s",
            round_number=1,
            node=self.number,
            masks=DerivedMasks(seed=0, dimension=4, num_shared=2),
            digest=layout.digest,
            layout=layout,
            tasks=(ClientTask("", START, 0, np.zeros(2)),),
        )
        content = encode_instruction(instruction)
        if change is not None:
            change(content)
        identify(self.run_id, 1)
        message = FlowerMessage(content, dst_node_id=NODE_ID, message_type="train", group_id="1")
        message.metadata.__dict__["_message_id"] = message.object_id
        for name, value in metadata.items():
            message.metadata.__dict__[f"_{name}"] = value
        if inline is not None:
            message.content = pack(message.content)
            proto, tree = write_inline(message)
            inline(proto, tree)
            self.queue.append(PullMessagesResponse(messages_list=[proto], message_object_trees=[tree]))
            return
        announced = get_all_nested_objects(message)
        self.announced |= announced.keys()
        if sent:
            self.objects |= {key: item.deflate() for key, item in announced.items()}
        self.objects |= objects or {}
        proto = message_to_proto(message)
        proto.content.Clear()
        self.queue.append(
            PullMessagesResponse(
                messages_list=[proto], message_object_trees=[tree or get_object_tree(message)]
            )
        )

    def expect(self, text, seconds=60.0):
        """Wait until the node has said `text`, and check that it said it in one short line."""

        def heard():
            assert self.node.is_alive()
            return any(text in line for line in self.said)

        try:
            wait_until(heard, seconds, f"hearing {text!r}")
        except PsofedError:
            pytest.fail(f"the node said {self.said}")
        assert all("\n" not in line and len(line) < 400 for line in self.said)

    def check_alive(self):
        """Check that the node still answers an honest instruction, in a new run."""
        self.run_id += 1
        self.fab = bundle()
        self.instruct()

        def answers():
            return [reply for reply in self.replies if reply.metadata.run_id == self.run_id]

        wait_until(answers, 180.0, "an answer to an honest instruction")
        assert not answers()[0].HasField("error"), answers()


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with Machine(tmp_path_factory.mktemp("hostile")) as server:
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def little_memory():
    """Let an allocation beyond 4 GB fail at once, rather than bring this machine down."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_the_node_answers_an_honest_instruction(machine):
    machine.check_alive()


def setting(name, value):
    def change(content):
        content["psofed"][name] = value

    return change


def unshared(shape, dtype="float64"):
    """Let the layout have an array besides, which is not shared."""

    def change(content):
        layout = json.loads(content["psofed"]["layout"])
        layout["arrays"].append(["private", shape, dtype])
        layout["private"].append("private")
        made = json.dumps(layout, separators=(",", ":"))
        content["psofed"]["layout"] = made
        content["psofed"]["digest"] = hashlib.blake2b(made.encode(), digest_size=8).hexdigest()

    return change


HOSTILE = {
    "round 2^62": (setting("round", 2**62), "round is"),
    "a negative round": (setting("round", -1), "round is"),
    "three billion unshared entries": (unshared([3_000_000_000]), "3,000,000,004 entries"),
    "an empty array with a side of a quintillion": (unshared([0, 10**18]), "entries"),
    "an array of strings of two gigabytes": (unshared([1], "S2000000000"), "something else than numbers"),
    "D = 2e8": (setting("dimension", 200_000_000), "200,000,000 entries"),
    "another node's number": (setting("node", "1"), "addresses node 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_instruction_beyond_all_bounds_is_refused_in_one_line(machine, name):
    change, text = HOSTILE[name]
    machine.said.clear()
    machine.instruct(change)
    machine.expect(text)
    machine.check_alive()


def test_a_message_that_is_not_the_servers_own_is_ignored(machine):
    for changed in ({"src_node_id": 99}, {"dst_node_id": 99}, {"reply_to_message_id": "0" * 64}):
        machine.said.clear()
        machine.instruct(**changed)
        machine.expect("no instruction of the server")
    machine.check_alive()


def test_an_object_tree_without_children_or_as_a_graph_ends_no_node(machine):
    root = calls.object_id("root")
    chain = calls.tree(calls.object_id(0))
    for level in range(1, 30):
        chain = calls.tree(calls.object_id(level), chain)
    leaves = [calls.tree(calls.object_id(i)) for i in range(3)]
    graph = calls.tree(root, *(calls.tree(calls.object_id(f"m{i}"), *leaves) for i in range(3)))
    for tree, text in ((chain, "deeper than"), (graph, "repeats an id"), (calls.tree(""), "not a SHA-256")):
        machine.said.clear()
        machine.instruct(tree=tree)
        machine.expect(text)
    machine.said.clear()
    machine.instruct()
    bare = machine.queue[-1] if machine.queue else None
    if bare is not None:
        del bare.message_object_trees[0].children[:]
        machine.expect("do not make up a message")
    machine.check_alive()


def test_an_object_that_is_announced_and_never_sent_holds_a_node_for_seconds(machine, monkeypatch):
    monkeypatch.setattr("psofed.federation.flower.fleet._OBJECT_SECONDS", 0.5)
    machine.said.clear()
    machine.instruct(setting("session", "never sent"), sent=False)
    machine.expect("did not send all of it", seconds=20.0)
    machine.check_alive()


INLINE = {
    "another date": lambda proto, tree: setattr(proto.metadata, "created_at", 1.0),
    "a tree of another message": lambda proto, tree: setattr(tree, "object_id", calls.object_id("x")),
    "objects besides": lambda proto, tree: tree.children.add(object_id=calls.object_id("x")),
    "an error besides": lambda proto, tree: proto.error.SetInParent(),
    "two records": lambda proto, tree: proto.content.items.add(key="x"),
    "too much": lambda proto, tree: setattr(
        proto.content.items[0].config_record.items[0].value, "bytes", bytes(2 * INLINE_BYTES)
    ),
}


def test_a_message_that_carries_its_content_is_answered_alike_if_it_matches_its_id(machine):
    for name, change in INLINE.items():
        machine.said.clear()
        machine.instruct(inline=change)
        machine.expect("ignored: the server sent")
        assert len(machine.said) == 1, (name, machine.said)
    machine.run_id += 1
    machine.instruct(inline=lambda proto, tree: None)

    def answers():
        return [reply for reply in machine.replies if reply.metadata.run_id == machine.run_id]

    wait_until(answers, 60.0, "an answer")
    check_inline(answers()[0], calls.tree(answers()[0].metadata.message_id))


def test_an_array_that_repeats_its_chunk_is_not_built():
    """One chunk of a megabyte, a million times: Flower copies it as often as the array says."""
    array = Array(np.zeros(1 << 17))
    message = FlowerMessage(RecordDict({"arrays": ArrayRecord({"values": array})}), 1, "train")
    contents = {key: item.deflate() for key, item in get_all_nested_objects(message).items()}
    head, _, body = array.deflate().partition(b"\x00")
    made = json.loads(body)
    made["arraychunk_ids"] = [0] * 1_000_000
    text = json.dumps(made).encode()
    forged = head.rpartition(b" ")[0] + b" " + str(len(text)).encode() + b"\x00" + text
    identity = hashlib.sha256(forged).hexdigest()
    # Every object above names the array by its id, so all of them are made again.
    renamed, old = {}, array.object_id
    for key, content in contents.items():
        if key == old:
            renamed[identity] = forged
            old_ids = {old: identity}
        else:
            for before, after in dict(old_ids if "old_ids" in locals() else {}).items():
                content = content.replace(before.encode(), after.encode())
            fresh = hashlib.sha256(content).hexdigest()
            if "old_ids" in locals():
                old_ids[key] = fresh
            renamed[fresh] = content
    with pytest.raises(BadTreeError, match="arrays of more than 10000000 bytes"):
        collect_message(list(renamed)[-1], renamed.__getitem__, 100, 10_000_000)


@pytest.mark.parametrize(
    ("fab", "text"),
    [
        (bundle(padding=674_000_000 // 100), "whose configuration has"),
        (b"not a bundle", "no app"),
        (b"x" * (2 << 20), "an app of 2,097,152 bytes"),
        (bundle({".".join(100_000 * "a"): 1}), "nested too deeply"),  # would take Flower a minute
        (bundle(SETTINGS.to_config() | {"scenario": "x" * 100_000}), "longer than 65,536 characters"),
    ],
)
def test_an_app_bundle_that_unpacks_to_much_is_not_unpacked(machine, fab, text):
    machine.said.clear()
    machine.run_id += 1
    machine.fab = fab
    machine.instruct()
    machine.expect(text)
    machine.check_alive()


@pytest.mark.parametrize(
    ("answer", "headers", "text"),
    [
        (b"\xff\xff", {}, "unreadable answer"),
        (gzip.compress(bytes(1 << 20)), {"Content-Encoding": "gzip"}, "compressed"),
        (b"", {"Content-Length": 10**12}, "answer of 1000000000000 bytes"),
        (b"0\r\n\r\n", {"Content-Length": 5, "Transfer-Encoding": "chunked"}, "answer of unknown bytes"),
        (PullMessagesResponse(messages_list=[{}]).SerializeToString(), {}, "several messages"),
    ],
)
def test_an_answer_that_no_server_gives_is_refused_before_it_is_read(machine, answer, headers, text):
    machine.said.clear()
    machine.tampered["pull-messages"] = (answer, headers)
    machine.expect(text)
    machine.check_alive()


def test_a_synthetic_fleet_beyond_all_bounds_is_refused():
    check_scenario(Scenario(num_clients=100, dimension=1000))
    for large in (
        Scenario(num_clients=10**9, dimension=4),
        Scenario(num_clients=4, dimension=10**8, num_participants=2),
    ):
        with pytest.raises(PsofedError, match="a node takes at most"):
            check_scenario(large)


@given(number=st.one_of(st.integers(MAX_ROUND + 1, 2**63 - 1), st.integers(-(2**63), 0)))
def test_no_round_number_beyond_all_bounds_is_read(number):
    content = RecordDict({"psofed": ConfigRecord({"round": number})})
    with pytest.raises(ValueError, match=r"."):
        decode_instruction(content)


def test_a_client_takes_models_as_large_as_it_says(make_app):
    """The bound is an argument of the mod, for those whose models are larger."""
    layout = ModelLayout.of(ArrayRecord([np.zeros(6)]))
    instruction = Instruction(
        session="s",
        round_number=1,
        node=1,
        masks=DerivedMasks(seed=0, dimension=6, num_shared=2),
        digest=layout.digest,
        layout=layout,
        tasks=(ClientTask("", START, 0, np.zeros(2)),),
    )
    message = FlowerMessage(encode_instruction(instruction), 1, "train")
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    with pytest.raises(ValueError, match="6 entries; this client takes at most 5"):
        partial_sharing(max_entries=5)(message, context, None)
    assert MAX_ENTRIES > 6
