"""Slow and silent nodes: how long a round waits for them, and how often they are asked."""

import numpy as np
import pytest
from nodes import fast_time, make_node, run

from psofed.common.errors import InvalidValueError
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.messages import decode_instruction
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.clients import Strikes
from psofed.federation.server.loop import Server
from psofed.federation.transport.in_process import InProcessHub

pytestmark = pytest.mark.federation


def test_rests_double_with_every_miss_and_an_answer_ends_them():
    strikes, asked = Strikes(ReplyLimits(rest_rounds=2)), []
    for n in range(1, 140):
        if strikes.may_take_part("late", n):
            asked.append(n)
            strikes.note("late", "no-reply", n)
    assert np.diff(asked).tolist() == [3, 5, 9, 17, 33, 33, 33]
    assert strikes.count("late") == 0
    assert strikes.banned == set()
    strikes = Strikes(strikes.limits, **strikes.to_mapping())
    strikes.forgive("late")
    strikes.note("late", "no-reply", 200)
    assert strikes.may_take_part("late", 203)


@pytest.mark.parametrize("bad", [{"patience": 0.5}, {"patience": -1.0}, {"grace": -1.0}, {"grace": np.inf}])
def test_bad_settings_are_named(bad):
    with pytest.raises(InvalidValueError, match=next(iter(bad))):
        ReplyLimits(**bad)


class SlowHub(InProcessHub):
    """A hub on which the replies of some nodes arrive late: `delays` are seconds, by node."""

    def __init__(self, nodes, delays):
        super().__init__(nodes)
        self.delays = delays
        self._due = []

    def receive(self, seconds):
        now = scheduler().monotonic()
        for node, frame in super().receive(0.0):
            self._due.append((now + self.delays.get(node, 0.0), node, frame))
        arrived = [(node, frame) for due, node, frame in self._due if due <= now]
        self._due = [entry for entry in self._due if entry[0] > now]
        if not arrived:
            scheduler().sleep(seconds)
        return arrived


def test_a_slow_node_costs_a_run_less_than_one_deadline_and_comes_back_when_it_is_fast():
    hub = SlowHub({name: make_node(name) for name in ("11", "12", "13", "14")}, {"14": 600.0})
    asked = []

    def recover(state):
        asked.append("14" in state.history[-1]["participants"])
        if state.round_number == 4:  # it was asked in rounds 1 and 4
            hub.delays = {}

    server = run(hub, 12, limits=ReplyLimits(grace=0.2), on_round=recover, deadline=600.0)
    assert asked == [n in (1, 4, 9, 10, 11, 12) for n in range(1, 13)]
    assert server.strikes.counts == {"14": {"no-reply": 2}}
    assert server.strikes.count("14") == 0
    # What it sent for rounds 1 and 4 arrived too late and counts nowhere.
    accepted = {record["round"] for record in server.state.history if "14" in record["accepted"]}
    assert accepted == {9, 10, 11, 12}
    assert sum(record["seconds"] for record in server.state.history) < 60.0


def test_a_round_waits_for_its_deadline_without_patience_and_without_a_majority():
    hub = SlowHub({name: make_node(name) for name in ("11", "12", "13", "14")}, {"13": 50.0, "14": 600.0})
    for limits, lasts in ((ReplyLimits(patience=0.0), 60.0), (ReplyLimits(patience=1.0, grace=0.0), 50.0)):
        (record,) = run(hub, 1, limits=limits).state.history
        assert record["seconds"] == pytest.approx(lasts, abs=0.5)
        assert record["dropped"] == {"14": "no-reply"}


class RestartingHub(InProcessHub):
    """A hub whose node 12 loses its first instruction of round 2: it is restarted just then, or gone for good."""

    def __init__(self, nodes, comes_back):
        super().__init__(nodes)
        self.comes_back, self.node = comes_back, self.nodes["12"]

    def send(self, node, frame):
        if node == "12" and decode_instruction(frame).round_number == 2 and self.node is not None:
            self.node = None
            del self.nodes["12"]
            if self.comes_back:
                self.nodes["12"] = make_node("12")
            return
        super().send(node, frame)


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_node_that_reconnects_is_asked_again_and_one_that_is_gone_is_not_waited_for(comes_back):
    hub = RestartingHub({name: make_node(name) for name in ("11", "12", "13")}, comes_back)
    server = run(hub, 2, deadline=600.0, limits=ReplyLimits(patience=0.0))
    record = server.state.history[-1]
    assert record["lost_state"] == (["12"] if comes_back else [])
    assert record["dropped"] == ({} if comes_back else {"12": "no-reply"})
    assert record["seconds"] <= (1.0 if comes_back else 5.0)


def test_while_the_hub_is_disconnected_nobody_is_taken_for_gone():
    class Disconnected(InProcessHub):
        until = 0.0

        @property
        def is_connected(self):
            return scheduler().monotonic() >= self.until

        def present(self):
            return super().present() if self.is_connected else {}

        def send(self, node, frame):
            if decode_instruction(frame).round_number == 2 and not self.until:
                self.until = scheduler().monotonic() + 30.0
                self.nodes = {name: make_node(name) for name in self.nodes}  # all connect again
            if self.is_connected:
                super().send(node, frame)

    server = run(Disconnected({name: make_node(name) for name in ("11", "12")}), 3)
    assert server.strikes.counts == {}
    assert [record["lost_state"] for record in server.state.history] == [[], ["11", "12"], []]


def test_a_gateways_clients_count_when_a_run_waits_for_its_participants():
    hub = InProcessHub({"gate": make_node("gate", clients=lambda: ["a", "b", "c"])})
    with fast_time() as clock:
        server = Server(2, rounds=RoundPlan(min_nodes=3, wait_for_nodes=120.0))
        server.run(hub, {"0": np.zeros(6)}, 2)
        assert clock.now < 1001.0
