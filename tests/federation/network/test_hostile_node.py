"""A node with a valid key that means harm, among three honest ones, with real processes.

It speaks the Fleet API by itself. Through the front door its forged calls are refused. Given straight to the SuperLink,
as if there were no front door, they are stored by Flower, and the exchange must neither take nor be held up by them.
"""

import contextlib
import threading
import time
from functools import partial

import calls
import httpx
import numpy as np
import pytest
from deployments import NAMES, run_in_process
from families import family_memory
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import RecordDict

from psofed import Scenario
from psofed.attacks import Gaussian
from psofed.common.errors import PsofedError
from psofed.common.files import read_json
from psofed.federation.deploy.processes import wait_until
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import follow, submit
from psofed.federation.flower import FleetConnection, UnreachableError
from psofed.federation.flower.link import SECRET_HEADER

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.takes(26)]

SCENARIO = Scenario(
    num_clients=4,
    dimension=4,
    num_participants=4,
    num_shared=2,
    attack=Gaussian(num_byzantine=1, probability=0.0),  # nobody but Mallory lies
)


def settings(rounds, **changes):
    """Return a run in which nobody is waited for much longer than the others."""
    options = {"deadline": 60.0, "grace": 0.0, "interval": 0.1, "synthetic": True, "min_nodes": 4} | changes
    return RunSettings(scenario=SCENARIO.replace(iterations=rounds), **options)


class Mallory(FleetConnection):
    """A registered node that sends what it likes, to the front door or straight to the SuperLink."""

    def __init__(self, deployed, *, straight=False):
        port = read_json(deployed.home.server_info)["superlink_port"] if straight else deployed.port
        credentials = deployed.home.credentials
        authority = credentials.link_certificate if straight else credentials.authority
        super().__init__(f"127.0.0.1:{port}", credentials.node_key("mallory"), authority)
        if straight:  # what only the front door knows
            self._client._client.headers[SECRET_HEADER] = credentials.read_secret()

    def __exit__(self, *error):
        if self.node_id:  # or the next test finds her online
            self.deactivate()
        super().__exit__(*error)

    def question(self, seconds=180.0):
        """Return the next message for it."""
        deadline = time.monotonic() + seconds
        next_heartbeat = 0.0
        while time.monotonic() < deadline:
            if time.monotonic() >= next_heartbeat:  # a run may take its time to start
                self.heartbeat()
                next_heartbeat = time.monotonic() + 5.0
            answer = self._call("PullMessages", PullMessagesRequest(node=self._node()))
            if answer.messages_list:
                return answer.messages_list[0].metadata
            time.sleep(0.05)
        raise AssertionError("nobody asks mallory")

    def injection(self, run_id, label, *objects, **changes):
        """Return a push of a message as if it were the SuperLink's own, announcing `objects` that never come."""
        root = calls.object_id(f"{label} {time.monotonic()}")
        about = {
            "run_id": run_id,
            "message_id": root,
            "src_node_id": 1,
            "dst_node_id": 1,
            "group_id": "1",
            "ttl": 600.0,
            "message_type": "train",
            "created_at": time.time(),
        }
        return PushMessagesRequest(
            node=self._node(),
            messages_list=[Message(metadata=Metadata(**(about | changes)), content=RecordDict())],
            message_object_trees=[calls.tree(root, *objects)],
        )

    def reply(self, about, *objects, **changes):
        """Return a push of a reply to a message, announcing `objects`."""
        request = calls.reply(
            self.node_id,
            root=f"reply {time.monotonic()}",
            run_id=about.run_id,
            reply_to_message_id=about.message_id,
            created_at=time.time(),
            **changes,
        )
        request.message_object_trees[0].CopyFrom(
            calls.tree(request.messages_list[0].metadata.message_id, *objects)
        )
        return request


@pytest.fixture(scope="module")
def deployed(deployment):
    with deployment.admit("mallory"):
        yield deployment


@contextlib.contextmanager
def running(deployed, settings):
    """Submit a run, and afterwards wait for its result, which is put into the list that is given."""
    result = []
    run = submit(deployed.home, settings, force=True)
    following = threading.Thread(
        target=lambda: result.append(follow(deployed.home, run, 180.0, check=deployed.check))
    )
    following.start()
    yield result
    following.join(timeout=400.0)
    assert result, "the run has not ended"


def check_unharmed(result, rounds):
    """Check that every honest node counted in every round and that nobody but Mallory was blamed."""
    assert len(result["history"]) == rounds
    for record in result["history"]:
        assert set(NAMES) <= set(record["accepted"]), record
    assert set(result["bad_replies"]) <= {"mallory"}


def test_through_the_front_door_no_forged_call_gets_in(deployed):
    """Injected messages, instructions to another node, an object tree that grows as a graph, and a long heartbeat."""
    rounds = 6
    with Mallory(deployed) as mallory, running(deployed, settings(rounds)) as result:
        mallory.activate()
        about = mallory.question()
        run_id = about.run_id
        victim = next(node["id"] for node in control_nodes(deployed) if node["name"] == "node-0")
        layer = [calls.object_id(i) for i in range(17)]
        for _ in range(2):
            layer = [calls.tree(calls.object_id(f"{i} of {len(layer)}"), *layer) for i in range(3)]
        shaped_as_a_graph = mallory.reply(about, *layer)
        forged = {
            "answers none": [mallory.injection(run_id, k, src_node_id=mallory.node_id) for k in range(33)],
            "not from the node": [mallory.injection(run_id, k) for k in range(33)],
            "not to the server": [
                mallory.injection(run_id, 1, src_node_id=mallory.node_id, dst_node_id=victim),
                mallory.reply(about, dst_node_id=victim),
            ],
            "repeats an id|more than": [shaped_as_a_graph],
        }
        # In the first round the server loads what it needs, and waits for Mallory's answer, at most to the deadline.
        deadline = time.monotonic() + 180.0
        while not deployed.round_done(1, rounds)() and time.monotonic() < deadline:
            mallory.heartbeat()
            time.sleep(1.0)
        # Of what the calls reach: not of the ServerApp, which begins and ends, nor of code that is shared with it.
        memory = partial(family_memory, deployed.server, but="flwr-serverapp", kind="Pss_Anon")
        before = memory()
        for reason, requests in forged.items():
            for request in requests:
                with pytest.raises(UnreachableError, match=reason):
                    mallory._call("PushMessages", request)
        with pytest.raises(UnreachableError, match="node id"):
            mallory._call("PullMessages", PullMessagesRequest(node=Node(node_id=victim)))
        assert memory() - before < 50 << 20
    check_unharmed(result[0], rounds)


def control_nodes(deployed):
    from psofed.federation.deploy.superlink import open_control

    with open_control(deployed.home) as control:
        return control.nodes()


def test_behind_the_front_door_injected_messages_hold_up_nobody(deployed, tmp_path):
    """One forged message a round, as in the attack that benched all honest nodes, and objects that never come."""
    rounds = 6
    stop, sent = threading.Event(), []

    def inject(run_id):
        while not stop.wait(0.1):
            with contextlib.suppress(PsofedError, httpx.HTTPError):
                mallory._call("PushMessages", mallory.injection(run_id, "x", calls.object_id("never")))
                sent.append(1)

    with Mallory(deployed, straight=True) as mallory, running(deployed, settings(rounds)) as result:
        mallory.activate()
        injecting = threading.Thread(target=inject, args=(mallory.question().run_id,))
        injecting.start()
        wait_until(lambda: deployed.status()["round"] >= rounds, 120.0, "the run to end")
        stop.set()
        injecting.join()
    assert len(sent) >= rounds
    check_unharmed(result[0], rounds)
    # The honest nodes' model is that of a federation without Mallory, in which she never answers.
    numbers = [deployed.number(k) for k in range(3)]
    alone = RunSettings(scenario=SCENARIO.replace(iterations=rounds), synthetic=True, min_nodes=3)
    undisturbed = run_in_process(alone, range(3), tmp_path, numbers=numbers)
    np.testing.assert_allclose(result[0]["model"], undisturbed["model"], rtol=0, atol=1e-14)


def test_a_node_that_announces_replies_and_never_sends_them_harms_itself_alone(deployed):
    """And one that deletes its own reply's objects again."""
    rounds = 6
    with Mallory(deployed) as mallory, running(deployed, settings(rounds)) as result:
        mallory.activate()
        about = mallory.question()
        request = mallory.reply(about, calls.object_id("never"), calls.object_id("never either"))
        mallory._call("PushMessages", request)
        with contextlib.suppress(PsofedError):
            mallory._call(
                "ConfirmMessageReceived",
                ConfirmMessageReceivedRequest(
                    node=mallory._node(),
                    run_id=about.run_id,
                    message_object_id=request.messages_list[0].metadata.message_id,
                ),
            )
    check_unharmed(result[0], rounds)
    assert set(result[0]["bad_replies"]["mallory"]) <= {"no-reply", "error"}
