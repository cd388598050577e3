"""Gateways: many clients in one node, each judged by itself, with one message per round."""

import itertools
import json
import logging

import numpy as np
import pytest
from nodes import FaultyHub, change_reply, fast_time, make_node, run
from stations import STATIONS, federate, gateway, rows_of, settings_of, write_table

from psofed.common.errors import PsofedError
from psofed.defences import Cusum
from psofed.federation.client.gateway import TrainingResult
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.online import read_stream
from psofed.federation.client.ready_made import ready_made_node
from psofed.federation.client.sources import Position, SharedTable, TableSource, client_of
from psofed.federation.protocol.frames import REPLY, decode_frame
from psofed.federation.protocol.messages import Announcement, RunDescription
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.checks import mean_of
from psofed.federation.server.clients import ClientRegistry
from psofed.federation.server.ready_made import run_ready_made
from psofed.federation.transport.in_process import InProcessHub

pytestmark = pytest.mark.federation


def test_clients_at_gateways_learn_what_they_learn_by_themselves(tmp_path):
    """All take part with one mask for all, so that the model does not depend on who is where."""
    path = write_table(tmp_path / "all.csv", STATIONS)
    alone = {name: gateway(path, client=name) for name in STATIONS}
    _, expected = federate(settings_of(6, 30), alone)
    lines = path.read_text().splitlines(keepends=True)
    parts = {}
    for k in (0, 1):  # half of the stations each
        mine = STATIONS[3 * k : 3 * k + 3]
        part = tmp_path / f"{k}.csv"
        part.write_text(lines[0] + "".join(line for line in lines if line.split(",")[0] in mine))
        parts[f"gate-{k}"] = gateway(part)
    hub, server = federate(settings_of(6, 30), parts)
    np.testing.assert_allclose(server.state.model, expected.state.model, rtol=0, atol=1e-12)
    assert sorted(server.state.seen) == STATIONS
    examples = [[entry["examples"] for entry in made.state.history] for made in (server, expected)]
    assert examples[0] == examples[1]
    assert sum(examples[0]) > 0
    assert not server.strikes.counts
    assert len(hub.sent) == 2 * 30


def counting(fails=(), step=1.0):
    """Return a training that adds a constant for each client, and keeps a count for each of them."""

    def train(request):
        count = request.records.get("count", {"n": 0})["n"]
        if request.client in fails:
            raise RuntimeError(f"{request.client} is broken")
        return TrainingResult(request.model + step, request.kept, {"count": {"n": count + 1}}, 1)

    return train


def hub_of(rosters, tamper=None, step=1.0, fails=()):
    """Return a hub of nodes by name: with a list or function of clients, or None for a plain node."""

    def node(name, clients):
        names = clients if clients is None or callable(clients) else lambda: clients
        return make_node(name, counting(fails, step), clients=names)

    return FaultyHub({name: node(name, clients) for name, clients in rosters.items()}, tamper)


def start(hub, rounds=6, leave_out=(), **options):
    given = {"limits": ReplyLimits(), **options}
    return run(hub, rounds, 2, plan=RoundPlan(wait_for_nodes=0.0, leave_out=leave_out), **given)


def test_clients_that_are_left_out_are_never_asked_alone_or_at_a_gateway():
    history = start(hub_of({"1": ["a", "b", "c"], "2": None}), 3, leave_out=("b", "2")).state.history
    assert [entry["participants"] for entry in history] == [["a", "c"]] * 3


def test_a_node_without_a_gateways_certificate_has_one_client_until_it_gets_one(caplog):
    allowed = {"1": 1}

    def grant(state):
        if state.round_number == 3:
            allowed["1"] = 50

    hub = hub_of({"1": ["a", "b", "c"], "2": None})
    server = start(hub, on_round=grant, clients_allowed=lambda node: allowed.get(node, 1))
    asked = [entry["participants"] for entry in server.state.history]
    assert asked == [["2", "a"]] * 3 + [["2", "a", "b", "c"]] * 3
    assert sum("its certificate is for one client" in line for line in caplog.messages) == 1


def test_a_gateway_whose_certificate_was_replaced_by_a_nodes_has_one_client_after_a_restart():
    registry = ClientRegistry(lambda node: 100)
    registry.meet({"plant": ("a", "b")})
    resumed = ClientRegistry(lambda node: 1, **registry.to_mapping())
    assert [client.name for client in resumed.clients_of(["plant"])] == ["a"]


def test_one_client_that_fails_rests_alone_and_keeps_nothing():
    hub = hub_of({"1": ["a", "b", "c"]}, fails=["b"])
    server = start(hub, rounds=3)
    assert server.strikes.counts == {"b": {"error": 1}}
    assert server.state.history[0]["reasons"] == {"b": "RuntimeError: b is broken"}
    assert server.state.history[1]["participants"] == ["a", "c"]
    memory = hub.nodes["1"].store.held
    assert {name: kept.records["count"]["n"] for name, kept in memory.clients.items()} == {"a": 3, "c": 3}


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("values", np.nan, "nan"),
        ("examples", -1, "inflated-examples"),
        ("metrics", {"mse": "low"}, "malformed"),
        ("statuses", "lost", "malformed"),
    ],
)
def test_a_lie_of_one_client_is_that_clients_alone(field, value, kind):
    def tamper(node, frame):
        header = decode_frame(frame, REPLY).header
        if "b" not in header["clients"]:
            yield node, frame
            return
        k = header["clients"].index("b")

        def values(sent):
            rows = sent.reshape(-1, 2).copy()
            if field == "values":
                rows[k] = value
            return (np.delete(rows, k, axis=0) if field == "statuses" else rows).ravel()

        fields = {}
        if field != "values":
            fields[field] = [value if i == k else entry for i, entry in enumerate(header[field])]
        yield node, change_reply(frame, values, **fields)

    server = start(hub_of({"1": ["a", "b", "c", "d"]}, tamper), 5, limits=ReplyLimits(ban_after=2))
    assert server.strikes.counts == {"b": {kind: 2}}
    assert server.strikes.banned == {"b"}
    assert server.state.history[-1]["accepted"] == ["a", "c", "d"]


def test_a_frame_that_cannot_be_read_is_the_fault_of_its_gateway_and_of_no_other():
    def tamper(node, frame):
        yield node, change_reply(frame, statuses=["learned"]) if node == "1" else frame

    server = start(hub_of({"1": ["a", "b"], "2": ["c", "d"]}, tamper))
    assert server.strikes.counts == {"a": {"malformed": 3}, "b": {"malformed": 3}}
    assert server.state.history[-1]["participants"] == ["c", "d"]


def test_a_client_that_was_not_asked_cannot_be_answered_for():
    def tamper(node, frame):
        names = decode_frame(frame, REPLY).header["clients"]
        yield node, change_reply(frame, clients=["zz" if name == "a" else name for name in names])

    server = start(hub_of({"1": ["a", "b"]}, tamper), rounds=1)
    assert server.strikes.counts == {"a": {"malformed": 1}, "b": {"malformed": 1}}


def test_a_defence_excludes_a_client_and_not_its_gateway():
    def tamper(node, frame):
        names = decode_frame(frame, REPLY).header["clients"]
        shift = np.repeat([5.0 * (name == "lies") for name in names], 2)
        yield node, change_reply(frame, lambda sent: sent + shift)

    hub = hub_of({"1": ["a", "b", "c", "lies"], "2": ["d", "e", "f"]}, tamper, step=0.01)
    hub.nodes["2"] = make_node("2", counting(step=0.011), clients=lambda: ["d", "e", "f"])
    server = start(hub, rounds=30, defence=Cusum(threshold=20.0), aggregation=None)
    assert set(server.state.suspects["nodes"]) == {"lies"}


def test_clients_come_and_go_while_the_gateway_runs():
    names = ["a", "b"]

    def change(state):
        names[:] = {2: ["b", "c"], 3: [], 4: ["a"]}.get(state.round_number, names)

    server = start(hub_of({"1": lambda: names, "2": ["z"]}), rounds=5, on_round=change)
    accepted = [entry["accepted"] for entry in server.state.history]
    assert accepted == [["a", "b", "z"], ["a", "b", "z"], ["b", "c", "z"], ["z"], ["a", "z"]]
    assert not server.strikes.counts


def test_two_gateways_that_name_the_same_client(tmp_path, caplog):
    """The first one keeps it, also after a restart of the server; both continue with their other clients."""
    hub = hub_of({"1": ["a", "b"], "2": ["b", "c"]})
    second = hub.nodes.pop("2")

    def join(state):
        hub.nodes["2"] = second

    caplog.set_level(logging.WARNING, "psofed.federation")
    first = start(hub, rounds=4, on_round=join, checkpoint=tmp_path / "c.npz")
    assert first.registry.owners == {"a": "1", "b": "1", "c": "2"}
    assert "2 names clients that are refused: b (belongs to 1, which used the name first)" in caplog.text
    assert "the server refuses clients that belong to other nodes, or are more than" in caplog.text
    assert first.state.history[-1]["accepted"] == ["a", "b", "c"]
    del hub.nodes["1"]  # the owner is away, and its client is still its own
    again = start(hub, rounds=6, checkpoint=tmp_path / "c.npz", resume=True)
    assert again.state.history[-1]["participants"] == ["c"]


def test_a_gateway_cannot_claim_the_name_of_a_node_that_was_offline_while_the_server_started_again(tmp_path):
    names, given = ["a"], {"checkpoint": tmp_path / "c.npz"}
    hub = hub_of({"1": lambda: names, "2": None})
    start(hub, rounds=2, **given)
    away = hub.nodes.pop("2")
    names.append("2")
    start(hub, rounds=4, resume=True, **given)
    hub.nodes["2"] = away
    again = start(hub, rounds=6, resume=True, **given)
    both, alone = ["2", "a"], ["a"]
    assert [entry["accepted"] for entry in again.state.history[1:]] == [both, alone, alone, both, both]
    assert again.registry.rosters == {"1": ["a"]}


def test_names_of_nodes_cannot_be_claimed_and_a_node_has_a_bounded_number_of_clients():
    registry = ClientRegistry(lambda node: 2)
    registry.meet({"gate": ("a", "b", "c", "pump"), "pump": None})
    assert registry.rosters == {"gate": ["a", "b"]}
    assert registry.refused["gate"] == ["c", "pump"]
    assert [client.name for client in registry.clients_of(["gate", "pump"])] == ["a", "b", "pump"]
    again = ClientRegistry(lambda node: 2, **registry.to_mapping())
    assert (again.rosters, again.owners) == (registry.rosters, registry.owners)
    registry.meet({"gate": None})  # no gateway any more
    assert [client.name for client in registry.clients_of(["gate", "pump"])] == ["gate", "pump"]


def test_no_gateway_can_name_a_client_as_another_nodes_client_is_called():
    """It would share that client's strikes. The number follows from the name, so a gateway may know it."""
    registry = ClientRegistry(lambda node: 9)
    registry.meet({"gate": ("8", "8-8")})  # before the node of that name came
    registry.meet({"gate": ("8", "8-8", "8-8-8"), "8": None})
    assert [client.name for client in registry.clients_of(["gate", "8"])] == ["8", "8-8", "8-8-8"]
    assert registry.refused["gate"] == ["8-8-8"]


def test_a_node_that_says_it_has_most_of_the_clients_is_warned_of_once(caplog):
    """It may be a gateway that means harm, and most of the round's replies would be its own."""
    caplog.set_level(logging.WARNING, "psofed.federation")
    start(hub_of({"1": ["a", "b", "c"], "2": ["z"], "3": ["y"]}), rounds=2)
    assert [line[:25] for line in caplog.messages] == ["1 has 3 of all 5 clients:"]


def test_a_new_client_of_a_full_gateway_takes_no_others_place():
    registry = ClientRegistry(lambda node: 2)
    registry.meet({"gate": ("north", "south")})
    registry.meet({"gate": ("a", "north", "south")})
    assert (registry.rosters["gate"], registry.refused["gate"]) == (["north", "south"], ["a"])
    registry.meet({"gate": ("a", "south")})
    assert registry.rosters["gate"] == ["a", "south"]


def test_a_gateway_that_changes_its_clients_all_the_time_fills_neither_memory_nor_log(caplog):
    """Two names at a time, twenty in all: its later ones are refused in one line a round."""
    asked = itertools.count()

    def names():
        number = next(asked)
        return [f"{number}-{k}" for k in range(500)]

    caplog.set_level(logging.INFO, "psofed.federation")
    hub = hub_of({"1": names, "2": ["z"]})
    server = start(hub, rounds=25, limits=ReplyLimits(max_clients=2), defence=Cusum(threshold=20.0))
    state, registry = server.state, server.registry
    assert list(registry.owners.values()).count("1") == 20
    assert len(state.seen) + len(state.strikes["counts"]) + len(state.suspects["names"]) < 80
    assert len(json.dumps(state.clients)) < 3000
    assert state.history[-1]["accepted"] == ["z"]
    refusals = [line for line in caplog.messages if "a node may use 20 names during a run" in line]
    assert refusals
    assert max(map(len, refusals)) < 300
    assert len(caplog.messages) < 8 * 25
    resumed = ClientRegistry(lambda node: 2, **json.loads(json.dumps(registry.to_mapping())))
    resumed.meet({"1": ("a name more",)})
    assert resumed.refused["1"] == ["a name more"]


def test_metrics_of_a_gateway_fill_neither_history_nor_log(caplog):
    """A client's metrics are kept up to 1,000 bytes per round; 100 bad replies of a kind are one line of the log."""

    def tamper(node, frame):
        clients = range(len(decode_frame(frame, REPLY).header["clients"]))
        metrics = [{f"{k} {name:04d}": [0.5] * 20 for name in range(99)} | {f"s{k}": 1.0} for k in clients]
        yield node, change_reply(frame, metrics=metrics, examples=[-1 - k if k > 5 else 1 for k in clients])

    caplog.set_level(logging.WARNING, "psofed.federation")
    server = start(hub_of({"1": [f"c{k}" for k in range(40)]}, tamper), rounds=2)
    entry = server.state.history[-1]
    assert len(entry["accepted"]) == 6
    assert set(map(len, entry["metrics"].values())) == {0}
    assert all("of metrics are left out" in remark for remark in entry["remarks"].values())
    dropped = [line for line in caplog.messages if "dropped" in line]
    assert len(dropped) == 1  # those of the second round are no news
    assert "and 30 more: inflated-examples: " in dropped[0]
    assert len(mean_of([{f"{k} {name}": 1.0 for name in range(100)} for k in range(9)])) == 100


def test_a_gateway_that_is_restarted_all_the_time_continues_as_if_nothing_had_happened(tmp_path):
    path = write_table(tmp_path / "all.csv", STATIONS)
    options, settings = gateway(path), settings_of(4, 12)
    _, expected = federate(settings, {"gate": options}, tmp_path / "kept")
    again = tmp_path / "restarted"

    class Restarting(InProcessHub):
        def send(self, node, frame):
            self.nodes[node] = ready_made_node(node, options, again)
            super().send(node, frame)

    with fast_time():
        server = run_ready_made(settings, Restarting({"gate": ready_made_node("gate", options, again)}))
    assert server.state.model.tolist() == expected.state.model.tolist()
    assert not server.strikes.counts
    assert [len(list(folder.glob("*.npz"))) for folder in (tmp_path / "kept", again)] == [1, 1]


def test_a_gateway_learns_from_each_row_as_it_arrives(tmp_path):
    path = write_table(tmp_path / "all.csv", STATIONS[:2], count=40)
    hub, _ = federate(settings_of(2, 1, samples_per_round=0), {"gate": gateway(path)})
    node = hub.nodes["gate"]
    node.tend()
    with path.open("a") as file:
        file.writelines(rows_of(["s1", "s7"], 5))
    node.tend()
    memory = node.store.held
    assert read_stream(memory.clients["s1"].records).position.samples == 45
    assert "s7" not in memory.clients, "it has not been drawn yet: it has no model to learn on"
    assert json.loads(node.announcement())["clients"] == ["s0", "s1", "s7"]


def test_a_shared_table_gives_each_client_its_own_rows(tmp_path):
    path = write_table(tmp_path / "all.csv", STATIONS, count=7)
    table = TableSource(path, ("a", "b"), "y", "station")
    shared = SharedTable(table)
    assert shared.names() == tuple(STATIONS)
    for station in STATIONS:
        alone = TableSource(path, ("a", "b"), "y", "station", station).read(Position(), 100)
        first = shared.source(station).read(Position(), 3)
        rest = shared.source(station).read(first.end, 100)
        np.testing.assert_array_equal(np.concatenate([first.inputs, rest.inputs]), alone.inputs)
        again = SharedTable(table).source(station).read(first.end, 100)  # in another process
        np.testing.assert_array_equal(again.targets, rest.targets)


def test_a_file_that_is_replaced_lets_clients_leave_and_bad_rows_are_their_clients_own(tmp_path):
    path = write_table(tmp_path / "all.csv", ["a", "b"], count=3)
    shared = SharedTable(TableSource(path, ("a", "b"), "y", "station"))
    before = shared.source("b").read(Position(), 100)
    write_table(path, ["b", "c"], count=2, seed=5)
    with path.open("a") as file:
        file.write("b,1,oops,3\n,1,2,3\nb,1,2,3\n")
    assert shared.names() == ("b", "c")
    after = shared.source("b").read(before.end, 100)
    assert len(after) == 3
    assert after.end.skipped == 1
    assert "oops" in after.problem


def test_a_row_of_a_client_that_no_gateway_can_have_stops_no_other(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("psofed.federation.client.sources.MAX_CLIENTS", 2)
    path = write_table(tmp_path / "all.csv", ["a", "x" * 101, "b", "c"], count=2)
    shared = SharedTable(TableSource(path, ("a", "b"), "y", "station"))
    for _ in range(2):  # before the first round, and after it
        assert shared.names() == ("a", "b")
        assert len(shared.source("b").read(Position(), 100)) == 2
    assert [line.count("skipping") for line in caplog.messages] == [1, 1]


@pytest.mark.parametrize("seed", range(3))
def test_a_client_that_floods_the_table_costs_nobody_a_row(tmp_path, monkeypatch, seed):
    """However rows and reads alternate, all get their rows in order, and nobody parses another's rows."""
    parsed = []
    monkeypatch.setattr(
        "psofed.federation.client.sources.client_of", lambda *row: parsed.append(row) or client_of(*row)
    )
    rng, path = np.random.default_rng(seed), tmp_path / "all.csv"
    path.write_text("station,x,y\n")
    shared = SharedTable(TableSource(path, ("x",), "y", "station"))
    written, taken, ends = {}, {}, {}
    for turn in range(60):
        with path.open("a") as file:
            for client in rng.permutation(["a", "b", *["flood"] * int(rng.integers(180)) * (turn < 40)]):
                written.setdefault(client, []).append(len(written.get(client, [])))
                file.write(f"{client},1,{written[client][-1]}\n" + "\n" * (rng.random() < 0.1))
        shared.names()
        for client in ("a", "b", "flood"):
            start = ends.get(client, Position())
            parsed.clear()
            samples = shared.source(client).read(start, 9 if client != "flood" else int(rng.integers(270)))
            assert len(parsed) <= len(samples) + 1
            if rng.random() < 0.8:  # otherwise its training fails, and it reads the same again
                ends[client] = samples.end
                taken.setdefault(client, []).extend(map(int, samples.targets))
    while len(samples := shared.source("flood").read(ends["flood"], 150)):
        ends["flood"] = samples.end
        taken["flood"].extend(map(int, samples.targets))
    assert taken["flood"] == written["flood"]
    assert all(taken[client] == written[client][: len(taken[client])] for client in ("a", "b"))
    assert min(len(taken["a"]), len(taken["b"])) > 50


def test_a_synthetic_run_refuses_a_gateway(tmp_path, caplog):
    path = write_table(tmp_path / "all.csv", STATIONS)
    nodes = {"gate": gateway(path), "pump": NodeOptions(partition=1)}
    _, server = federate(settings_of(2, 2, synthetic=True), nodes)
    assert "gate cannot take part: this node is a gateway" in caplog.text
    assert server.state.history[-1]["accepted"] == ["pump"]


def test_a_gateway_without_its_table_takes_part_once_it_is_there(tmp_path):
    path = tmp_path / "all.csv"
    node = ready_made_node("gate", gateway(path))
    node.begin(RunDescription("s", settings_of(2, 1).to_mapping()).to_bytes())
    assert "No such file" in json.loads(node.announcement())["problem"]
    with pytest.raises(PsofedError, match="no node is available"):
        federate(settings_of(2, 1, wait_for_nodes=0.0), {"gate": gateway(path)})
    write_table(path, STATIONS[:2])
    assert Announcement.from_bytes(node.announcement()) == Announcement("s", ("s0", "s1"))
