"""The contract with Flower's internals: what psofed uses of them must be there, in the form that it uses."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from psofed.federation import flower
from psofed.federation.flower.clock import SteadyClock

pytestmark = pytest.mark.federation

SOURCE = Path(inspect.getfile(flower)).parents[1]


def test_the_superlinks_heartbeats_are_kept_by_a_clock_that_does_not_jump():
    """Set one minute ahead or back, it follows by a tenth of the time that passes; Flower's keepers read it."""
    wall, passed = [1000.0], [0.0]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    for jump in (60.0, -120.0, 0.0):
        wall[0] += jump + 10.0
        passed[0] += 10.0
        before = clock._seconds
        assert 9.0 - 1e-9 <= clock.seconds() - before <= 11.0 + 1e-9
    for _ in range(100):
        wall[0] += 10.0
        passed[0] += 10.0
        clock.seconds()
    assert clock.seconds() == pytest.approx(wall[0])
    code = (
        "from psofed.federation.flower.clock import keep_time_steady; keep_time_steady();"
        "from flwr.server.superlink.linkstate import in_memory_linkstate as link;"
        "from flwr.supercore.corestate import in_memory_corestate as core;"
        "print(type(link.now.__self__).__name__, type(core.now.__self__).__name__)"
    )
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["SteadyClock", "SteadyClock"]


def test_the_installed_flower_is_one_that_the_long_lived_node_was_tested_with():
    assert flower.untested_version() is None


@pytest.mark.parametrize("installed", ["1.39.2", "1.43.0", "2.0.0", "1.4"])
def test_other_versions_are_told(monkeypatch, installed):
    monkeypatch.setattr(flower.versions, "_installed", lambda: installed)
    assert flower.untested_version() == installed


def test_flowers_internals_are_imported_in_one_package_only():
    public = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy")
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "flower":
            continue
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] in (["from"], ["import"]) and words[1].split(".")[0] == "flwr":
                assert words[1] in public, f"{path.name}: {line}"


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_the_clients_of_both_apis_are_as_expected():
    from flwr.supercore.control import ControlHttpClient
    from flwr.supernode.fleet_http_client import FleetHttpClient

    for name in (
        "ActivateNode",
        "DeactivateNode",
        "SendNodeHeartbeat",
        "PullMessages",
        "PushMessages",
        "GetRun",
        "GetFab",
        "PushObject",
        "PullObject",
        "ConfirmMessageReceived",
    ):
        assert parameters(getattr(FleetHttpClient, name)) == ["self", "request"], name
    for name in ("RegisterNode", "UnregisterNode", "ListNodes", "StartRun", "StopRun", "ListRuns"):
        assert parameters(getattr(ControlHttpClient, name)) == ["self", "request"], name
    expected = ["server_address", "insecure", "root_certificates", "interceptors"]
    assert parameters(FleetHttpClient.from_server_address)[:4] == expected


def test_the_requests_have_the_fields_that_are_used():
    from flwr.proto import control_pb2, fleet_pb2, heartbeat_pb2, message_pb2, node_pb2

    fields = {
        fleet_pb2.ActivateNodeRequest: {"public_key", "heartbeat_interval"},
        fleet_pb2.DeactivateNodeRequest: {"node_id"},
        fleet_pb2.PullMessagesResponse: {"messages_list", "message_object_trees"},
        fleet_pb2.PushMessagesRequest: {
            "node",
            "messages_list",
            "message_object_trees",
            "clientapp_runtime_list",
        },
        fleet_pb2.PushMessagesResponse: {"objects_to_push", "session_id"},
        heartbeat_pb2.SendNodeHeartbeatRequest: {"node", "heartbeat_interval"},
        message_pb2.PullObjectResponse: {"object_found", "object_available", "object_content"},
        message_pb2.PushObjectRequest: {"node", "run_id", "object_id", "object_content", "session_id"},
        message_pb2.ConfirmMessageReceivedRequest: {"node", "run_id", "message_object_id"},
        node_pb2.NodeInfo: {"node_id", "public_key", "name", "status", "online_until", "heartbeat_interval"},
        control_pb2.StartRunRequest: {"fab"},
        control_pb2.RegisterNodeRequest: {"public_key", "name"},
    }
    for message, names in fields.items():
        assert names <= set(message.DESCRIPTOR.fields_by_name), message


def test_no_request_has_a_field_that_the_front_door_does_not_know():
    """The rule in flower/calls.py was written for these; a field more must be looked at before it is let through."""
    from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

    fields = {
        fleet_pb2.ActivateNodeRequest: "public_key heartbeat_interval",
        fleet_pb2.DeactivateNodeRequest: "node_id",
        fleet_pb2.PullMessagesRequest: "node message_ids",
        fleet_pb2.PushMessagesRequest: "node messages_list message_object_trees clientapp_runtime_list",
        message_pb2.Message: "metadata content error",
        message_pb2.Metadata: "run_id message_id src_node_id dst_node_id reply_to_message_id group_id ttl message_type"
        " created_at src_task_id dst_task_id",
        message_pb2.ObjectTree: "object_id children",
        heartbeat_pb2.SendNodeHeartbeatRequest: "node heartbeat_interval",
        message_pb2.PushObjectRequest: "node run_id object_id object_content session_id",
        message_pb2.PullObjectRequest: "node run_id object_id",
        message_pb2.ConfirmMessageReceivedRequest: "node run_id message_object_id",
        run_pb2.GetRunRequest: "node run_id",
        fab_pb2.GetFabRequest: "node hash_str run_id",
    }
    for message, names in fields.items():
        assert {field.name for field in message.DESCRIPTOR.fields} == set(names.split()), message


def test_the_front_door_bounds_what_flower_sets():
    from flwr.common.constant import (
        FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE,
        HEARTBEAT_DEFAULT_INTERVAL,
        SUPERLINK_NODE_ID,
    )

    assert flower.CHUNK_BYTES == FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE
    assert flower.calls.LONGEST_HEARTBEAT == HEARTBEAT_DEFAULT_INTERVAL  # a stock SuperNode's
    assert flower.SUPERLINK == SUPERLINK_NODE_ID


def test_the_headers_and_the_shortest_heartbeat_are_flowers():
    from flwr.common.constant import HEARTBEAT_MIN_INTERVAL, HEARTBEAT_PATIENCE, TIMESTAMP_HEADER
    from flwr.supercore.constant import (
        FLEET_HTTP_PUBLIC_KEY_HEADER,
        FLEET_HTTP_SIGNATURE_HEADER,
        TASK_TOKEN_HEADER,
    )

    assert flower.link.TOKEN_HEADER == TASK_TOKEN_HEADER
    assert flower.KEY_HEADER == FLEET_HTTP_PUBLIC_KEY_HEADER
    assert flower.SIGNATURE_HEADER == FLEET_HTTP_SIGNATURE_HEADER
    assert flower.TIMESTAMP_HEADER == TIMESTAMP_HEADER
    assert flower.HEARTBEAT >= HEARTBEAT_MIN_INTERVAL
    assert HEARTBEAT_PATIENCE == 2


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x02\x08\x01\x0a", b"nonsense" * 9])
def test_packed_nonsense_is_a_value_error(data):
    from flwr.app import ConfigRecord, RecordDict

    from psofed.federation.protocol.packing import PACKED, unpack

    with pytest.raises(ValueError):
        unpack(RecordDict({PACKED: ConfigRecord({"records": data})}))
    with pytest.raises(ValueError):
        unpack(RecordDict({PACKED: ConfigRecord({"other": 1})}))


def test_a_nodes_number_belongs_to_its_key(tmp_path):
    from psofed.federation.deploy.credentials import make_node_key

    path = make_node_key(tmp_path / "pump-1.key")
    number = flower.number_of_key(flower.public_key_of(path))
    with flower.FleetConnection("127.0.0.1:9", tmp_path / "pump-1.key", make_authority(tmp_path)) as fleet:
        assert fleet.number == number
    assert 0 <= number < 1 << 64


def test_nodes_that_are_registered_are_listed_and_those_that_were_are_not(tmp_path):
    from flwr.proto.control_pb2 import ListNodesResponse
    from flwr.proto.node_pb2 import NodeInfo

    from psofed.federation.deploy.credentials import make_node_key

    keys = [flower.public_key_of(make_node_key(tmp_path / f"{n}.key")) for n in range(3)]
    known = [
        NodeInfo(
            node_id=4, name="pump", public_key=keys[0], status="online", online_until=1000.0, heartbeat_interval=30.0
        ),
        NodeInfo(node_id=5, name="gone", public_key=keys[1], status="unregistered"),
        NodeInfo(node_id=6, name="new", public_key=keys[2], status="registered"),
    ]  # fmt: skip
    with flower.Control(9, make_authority(tmp_path)) as control:
        control._client.ListNodes = lambda request: ListNodesResponse(nodes_info=known)
        found = control.nodes()
    assert [(node["id"], node["name"], node["status"]) for node in found] == [
        (4, "pump", "online"),
        (6, "new", "registered"),
    ]
    assert [node["number"] for node in found] == [flower.number_of_key(key) for key in (keys[0], keys[2])]
    # Flower takes a node for online until two heartbeats after its last sign of life.
    assert [node["last_seen"] for node in found] == [940.0, None]


def make_authority(folder):
    from psofed.federation.deploy.credentials import make_credentials

    return make_credentials(folder / "c", [], []).authority


def test_a_failure_is_told_with_flowers_own_code():
    from flwr.app import Message, RecordDict
    from flwr.common.constant import ErrorCode

    flower.identify(run=1, node=1)
    question = Message(RecordDict(), dst_node_id=1, message_type="train")
    reply = flower.error_reply("broken", question)
    assert (reply.error.code, reply.error.reason) == (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "broken")
