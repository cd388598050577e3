"""Gateways: many clients in one node, each judged by itself, with one message per round."""

import itertools
import json
import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, Error, MetricRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp
from stations import STATIONS, federate, gateway, rows_of, settings_of, write_table

from psofed import PsofedError
from psofed.common.files import read_json
from psofed.defences import Cusum
from psofed.federation import PSOFed, partial_sharing
from psofed.federation.client.columns import TableSource
from psofed.federation.client.online import read_stream
from psofed.federation.client.shared_table import SharedTable
from psofed.federation.client.sources import Position
from psofed.federation.client.state import memory_of
from psofed.federation.deploy.app import ReadyMadeApp, run_server
from psofed.federation.deploy.export import load_model
from psofed.federation.deploy.status import status_lines
from psofed.federation.deploy.superlink import Home
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.clients import ClientRegistry
from psofed.federation.server.nodes import Node
from psofed.federation.server.rounds import mean_of
from psofed.federation.testing import InProcessGrid

pytestmark = pytest.mark.federation


@pytest.mark.parametrize(
    "columns", [{}, {"features": ("a", "b"), "target_column": "y"}], ids=["adopted", "named"]
)
def test_clients_at_gateways_learn_what_they_learn_by_themselves(tmp_path, columns):
    """All take part with one mask for all, so that the model does not depend on who is where."""
    path = write_table(tmp_path / "all.csv", STATIONS)
    alone = {k + 1: gateway(path, client=name) for k, name in enumerate(STATIONS)}
    _, expected = federate(tmp_path / "alone", alone, 6, 30, **columns)
    parts = [write_table(tmp_path / f"{k}.csv", STATIONS) for k in (0, 1)]
    for k, part in enumerate(parts):  # half of the stations each
        lines = path.read_text().splitlines(keepends=True)
        mine = STATIONS[3 * k : 3 * k + 3]
        part.write_text(lines[0] + "".join(line for line in lines if line.split(",")[0] in mine))
    grid, result = federate(
        tmp_path / "two", {k + 1: gateway(part) for k, part in enumerate(parts)}, 6, 30, **columns
    )
    np.testing.assert_allclose(result["model"], expected["model"], rtol=0, atol=1e-12)
    assert list(result["nodes"]) == STATIONS
    assert result["examples"] == expected["examples"] > 0
    assert [*result["bad_replies"].values()] == [*expected["bad_replies"].values()]
    messages = [message for message in grid.sent if message.metadata.group_id == "30"]
    assert len(messages) == 2


def counting_app(names, step=1.0, fails=(), reports=()):
    """Return a gateway that adds a constant for each client, and keeps a count for each of them.

    The training of clients in `fails` raises an exception, that of clients in `reports` replies with an error.
    """
    app = ClientApp()

    @app.train(mods=[partial_sharing(clients=names)])
    def train(message, context):
        client = message.content["config"].get("psofed-client", "")
        count = context.state["count"]["n"] if "count" in context.state else 0
        context.state["count"] = MetricRecord({"n": count + 1})
        if client in fails:
            raise RuntimeError(f"{client} is broken")
        if client in reports:
            return FlowerMessage(Error(code=0, reason=f"{client} is broken"), reply_to=message)
        (weights,) = message.content["arrays"].to_numpy_ndarrays()
        records = {"arrays": ArrayRecord([weights + step]), "metrics": MetricRecord({"num-examples": 1})}
        return FlowerMessage(RecordDict(records), reply_to=message)

    return app


def start(grid, rounds=6, leave_out=(), **options):
    strategy = PSOFed(2, rounds=RoundPlan(wait_for_nodes=0.0, leave_out=leave_out), **options)
    strategy.start(grid, np.zeros(6), num_rounds=rounds)
    return strategy


def test_clients_that_are_left_out_are_never_asked_alone_or_at_a_gateway():
    grid = InProcessGrid({1: counting_app(["a", "b", "c"]), 2: counting_app(None)})
    history = start(grid, rounds=3, leave_out=("b", "2")).state.history
    assert [entry["participants"] for entry in history] == [["a", "c"]] * 3


def test_a_node_without_a_gateways_key_has_one_client_until_it_gets_one(caplog):
    allowed = set()
    grid = InProcessGrid({1: counting_app(["a", "b", "c"]), 2: counting_app(None)})
    strategy = PSOFed(2, rounds=RoundPlan(wait_for_nodes=0.0), is_gateway=allowed.__contains__)
    strategy.on_round = lambda state: allowed.add("1") if state.round_number == 3 else None
    strategy.start(grid, np.zeros(6), num_rounds=6)
    asked = [entry["participants"] for entry in strategy.state.history]
    assert asked[1:3] == [["2", "a"]] * 2  # in the first round it is not yet known what node 1 is
    assert asked[-1] == ["2", "a", "b", "c"]
    assert sum("psofed federation certs --gateway 1" in line for line in caplog.messages) == 1


def test_a_gateway_whose_key_was_replaced_by_a_nodes_has_one_client_after_a_restart():
    node, registry = Node("plant", 1, 11), ClientRegistry(most=100)
    registry.note(node, ["a", "b"])
    resumed = ClientRegistry.from_mapping(registry.to_mapping(), 100, is_gateway=lambda name: False)
    assert [client.name for client in resumed.clients_of([node])] == ["a"]


def test_one_client_that_fails_rests_alone_and_keeps_nothing():
    grid = InProcessGrid({1: counting_app(["a", "b", "c"], fails=["b"])})
    strategy = start(grid, rounds=3)
    assert strategy.conduct.counts == {"b": {"error": 1}}
    assert strategy.state.history[0]["reasons"] == {"b": "RuntimeError: b is broken"}
    assert strategy.state.history[1]["participants"] == ["a", "c"]
    memory = memory_of(grid.contexts[1])
    assert {name: kept.records["count"]["n"] for name, kept in memory.clients.items()} == {"a": 3, "c": 3}


def test_one_client_that_replies_with_an_error_leaves_the_others_answers():
    strategy = start(InProcessGrid({1: counting_app(["a", "b", "c"], reports=["c"])}), rounds=1)
    assert strategy.conduct.counts == {"c": {"error": 1}}
    assert strategy.state.history[0]["accepted"] == ["a", "b"]


def test_values_that_all_participants_get_are_encoded_once():
    grid = InProcessGrid({node: counting_app(None) for node in (1, 2, 3)})
    start(grid, rounds=2)
    sent = [m.content["arrays"]["values"] for m in grid.sent if m.metadata.group_id == "2"]
    assert len(sent) == 3
    assert all(array is sent[0] for array in sent)


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("values", np.nan, "nan"),
        ("values", 1e300, "implausible"),
        ("examples", -1, "inflated-examples"),
        ("metrics", "{", "malformed"),
        ("statuses", "lost", "malformed"),
    ],
)
def test_a_lie_of_one_client_is_that_clients_alone(field, value, kind):
    def tamper(reply):
        settings = reply.content["psofed"]
        if "b" in settings["clients"]:
            k = settings["clients"].index("b")
            values = reply.content["arrays"]["values"].numpy().copy().reshape(-1, 2)
            if field == "values":
                values[k] = value
            else:
                settings[field] = [value if i == k else entry for i, entry in enumerate(settings[field])]
            if field == "statuses":
                values = np.delete(values, k, axis=0)
            reply.content["arrays"] = ArrayRecord({"values": ArrayRecord([values.reshape(-1)])["0"]})
        yield reply

    grid = InProcessGrid({1: counting_app(["a", "b", "c", "d"])}, tamper=tamper)
    strategy = start(grid, rounds=5, limits=ReplyLimits(bench_after=2))
    assert strategy.conduct.counts == {"b": {kind: 2}}
    assert strategy.conduct.benched == {"b"}
    assert strategy.state.history[-1]["accepted"] == ["a", "c", "d"]


def test_a_message_that_cannot_be_read_is_the_fault_of_its_gateway_and_of_no_other():
    def tamper(reply):
        if reply.metadata.src_node_id == 1 and "arrays" in reply.content:
            reply.content["psofed"]["statuses"] = ["learned"]
        yield reply

    grid = InProcessGrid({1: counting_app(["a", "b"]), 2: counting_app(["c", "d"])}, tamper=tamper)
    strategy = start(grid)
    assert strategy.conduct.counts == {"a": {"malformed": 3}, "b": {"malformed": 3}}
    assert strategy.state.history[-1]["participants"] == ["c", "d"]


def test_a_client_that_was_not_asked_cannot_be_answered_for():
    def tamper(reply):
        if "arrays" in reply.content:
            names = reply.content["psofed"]["clients"]
            reply.content["psofed"]["clients"] = ["zz" if name == "a" else name for name in names]
        yield reply

    strategy = start(InProcessGrid({1: counting_app(["a", "b"])}, tamper=tamper), rounds=1)
    assert strategy.conduct.counts == {"a": {"malformed": 1}, "b": {"malformed": 1}}


def test_a_defence_excludes_a_client_and_not_its_gateway():
    def tamper(reply):
        record = reply.content.get("arrays")
        if record is not None and "lies" in reply.content["psofed"]["clients"]:
            values = record["values"].numpy().copy()
            row = reply.content["psofed"]["clients"].index("lies")
            values[2 * row : 2 * row + 2] += 5.0
            reply.content["arrays"] = ArrayRecord({"values": ArrayRecord([values])["0"]})
        yield reply

    grid = InProcessGrid(
        {1: counting_app(["a", "b", "c", "lies"], 0.01), 2: counting_app(["d", "e", "f"], 0.011)},
        tamper=tamper,
    )
    strategy = start(grid, rounds=30, defence=Cusum(threshold=20.0), limits=ReplyLimits(max_deviation=0.0))
    assert set(strategy.state.suspects["nodes"]) == {"lies"}


def test_clients_come_and_go_while_the_gateway_runs():
    names = ["a", "b"]
    grid = InProcessGrid({1: counting_app(lambda: names), 2: counting_app(["z"])})

    def change(state):
        if state.round_number == 2:
            names[:] = ["b", "c"]

    strategy = start(grid, rounds=5, on_round=change)
    history = strategy.state.history
    assert history[1]["accepted"] == ["a", "b", "z"]
    assert history[2]["left"] == ["a"]
    assert history[2]["accepted"] == ["b", "z"]
    assert history[3]["accepted"] == ["b", "c", "z"]
    assert not strategy.conduct.counts


def test_a_gateway_without_a_client_waits_without_blame():
    names: list[str] = []
    grid = InProcessGrid({1: counting_app(lambda: names), 2: counting_app(["z"])})

    def change(state):
        names[:] = ["a"] if 2 <= state.round_number < 4 else []

    strategy = start(grid, rounds=7, on_round=change)
    assert [record["accepted"] for record in strategy.state.history[2:]] == [
        ["z"],  # and the gateway names its client
        ["a", "z"],
        ["z"],
        ["z"],
        ["z"],
    ]
    assert not strategy.conduct.counts


def test_two_gateways_that_name_the_same_client(tmp_path, caplog):
    """The first one keeps it, also after a restart of the server; both continue with their other clients."""
    apps = {1: counting_app(["a", "b"]), 2: counting_app(["b", "c"])}
    grid = InProcessGrid({1: apps[1]})

    def join(state):
        grid.apps[2] = apps[2]
        grid.contexts.setdefault(2, InProcessGrid({2: apps[2]}).contexts[2])

    caplog.set_level(logging.WARNING, "psofed.federation")
    first = start(grid, rounds=4, on_round=join, checkpoint=tmp_path / "c.npz")
    assert first.registry.owners == {"a": "1", "b": "1", "c": "2"}
    assert "2 names clients that are refused: b of 1 (a name belongs to the node that" in caplog.text
    assert "the server refuses clients that belong to other nodes, or are more than" in caplog.text
    assert first.state.history[-1]["accepted"] == ["a", "b", "c"]
    del grid.apps[1]  # the owner is away, and its client is still its own
    again = start(grid, rounds=6, checkpoint=tmp_path / "c.npz", resume=True)
    assert again.state.history[-1]["participants"] == ["c"]


def test_a_gateway_cannot_claim_the_name_of_a_node_that_was_offline_while_the_server_started_again(tmp_path):
    names = ["a"]
    grid = InProcessGrid({1: counting_app(lambda: names), 2: counting_app(None)})
    start(grid, rounds=2, checkpoint=tmp_path / "c.npz")
    away = grid.apps.pop(2)
    names.append("2")
    start(grid, rounds=4, checkpoint=tmp_path / "c.npz", resume=True)
    grid.apps[2] = away
    again = start(grid, rounds=6, checkpoint=tmp_path / "c.npz", resume=True)
    both, alone = ["2", "a"], ["a"]
    assert [entry["accepted"] for entry in again.state.history[1:]] == [both, alone, alone, both, both]
    assert again.registry.rosters == {"1": ["a"]}


def test_names_of_nodes_cannot_be_claimed_and_a_node_has_a_bounded_number_of_clients(caplog):
    registry = ClientRegistry(most=2)
    gate, pump = Node("gate", 7, 70), Node("pump", 8, 80)
    registry.meet([gate, pump])
    registry.note(gate, ["a", "b", "c", "pump"])
    assert registry.rosters == {"gate": ["a", "b"]}
    assert registry.refused(gate) == ("c", "pump")
    assert [client.name for client in registry.clients_of([gate, pump])] == ["a", "b", "pump"]
    again = ClientRegistry.from_mapping(registry.to_mapping(), most=2)
    assert (again.rosters, again.owners, again.digest(gate)) == (
        registry.rosters,
        registry.owners,
        registry.digest(gate),
    )
    registry.note(gate, [])  # no gateway any more
    assert [client.name for client in registry.clients_of([gate, pump])] == ["gate", "pump"]


def test_no_gateway_can_name_a_client_as_another_nodes_client_is_called():
    """It would share that client's strikes. The number follows from a public key, so a gateway may know it."""
    registry, gate, pump = ClientRegistry(most=9), Node("gate", 7, 70), Node("pump", 8, 80)
    registry.note(gate, ["pump", "pump-8"])  # before the node of that name came
    registry.meet([gate, pump])
    registry.note(gate, ["pump", "pump-8", "pump-8-8"])
    names = [client.name for client in registry.clients_of([gate, pump])]
    assert names == ["pump", "pump-8", "pump-8-8"]
    assert registry.refused(gate) == ("pump-8-8",)


def test_a_node_that_says_it_has_most_of_the_clients_is_warned_of_once(caplog):
    """It may be a plain node that means harm, and most of the round's replies would be its own."""
    caplog.set_level(logging.WARNING, "psofed.federation")
    grid = InProcessGrid({1: counting_app(["a", "b", "c"]), 2: counting_app(["z"]), 3: counting_app(["y"])})
    start(grid, rounds=2)
    assert [line[:25] for line in caplog.messages] == ["1 has 3 of all 5 clients:"]


def test_a_new_client_of_a_full_gateway_takes_no_others_place():
    registry, gate = ClientRegistry(most=2), Node("gate", 7, 70)
    registry.note(gate, ["north", "south"])
    registry.note(gate, ["a", "north", "south"])
    assert (registry.rosters["gate"], registry.refused(gate)) == (["north", "south"], ("a",))
    registry.note(gate, ["a", "south"])
    assert registry.rosters["gate"] == ["a", "south"]


def test_a_gateway_that_changes_its_clients_in_every_round_fills_neither_memory_nor_log(caplog):
    """Two names at a time, twenty in all: its later ones are refused in one line a round."""
    asked = itertools.count()

    def names():
        number = next(asked)
        return [f"{number}-{k}" for k in range(500)]

    caplog.set_level(logging.INFO, "psofed.federation")
    grid = InProcessGrid({1: counting_app(names), 2: counting_app(["z"])})
    strategy = start(grid, rounds=25, limits=ReplyLimits(max_clients=2), defence=Cusum(threshold=20.0))
    state, registry = strategy.state, strategy.registry
    assert list(registry.owners.values()).count("1") == 20
    assert len(state.seen) + len(state.conduct["counts"]) + len(state.suspects["names"]) < 80
    assert len(json.dumps(state.clients)) < 3000
    assert state.history[-1]["accepted"] == ["z"]
    refusals = [line for line in caplog.messages if "a node may use 20 names during a run" in line]
    assert refusals
    assert max(map(len, refusals)) < 300
    assert len(caplog.messages) < 6 * 25
    resumed = ClientRegistry.from_mapping(json.loads(json.dumps(registry.to_mapping())), most=2)
    assert resumed.note(Node("1", 1, 1), ["a name more"])
    assert resumed.refused(Node("1", 1, 1)) == ("a name more",)


def test_metrics_of_a_gateway_fill_neither_history_nor_result_nor_log(caplog):
    """A client's metrics are kept up to 1,000 bytes per round; 100 bad replies of a kind are one line of the log."""

    def tamper(reply):
        settings = reply.content["psofed"]
        clients = range(len(settings["clients"]))
        if "arrays" in reply.content:
            settings["metrics"] = [
                json.dumps({f"{k} {name:04d}": [0.5] * 20 for name in range(99)} | {f"s{k}": 1.0})
                for k in clients
            ]
            settings["examples"] = [-1 - k if k > 5 else 1 for k in clients]
        yield reply

    caplog.set_level(logging.WARNING, "psofed.federation")
    grid = InProcessGrid({1: counting_app([f"c{k}" for k in range(40)])}, tamper=tamper)
    strategy = start(grid, rounds=2)
    entry = strategy.state.history[-1]
    assert len(entry["accepted"]) == 6
    assert set(map(len, entry["metrics"].values())) == {0}
    assert all("of metrics are left out" in remark for remark in entry["remarks"].values())
    dropped = [line for line in caplog.messages if "dropped" in line]
    assert len(dropped) == 1  # those of the second round are no news
    assert "and 30 more: inflated-examples: " in dropped[0]
    assert len(mean_of([{f"{k} {name}": 1.0 for name in range(100)} for k in range(9)])) == 100


def test_a_gateway_that_was_restarted_continues_as_if_nothing_had_happened(tmp_path):
    path = write_table(tmp_path / "all.csv", STATIONS)
    results = []
    for forgets in (False, True):
        folder = tmp_path / str(forgets)
        nodes = {1: gateway(path, **{"psofed-state": str(folder / "state")})}
        settings = settings_of(4, 12, min_nodes=1)
        grid = InProcessGrid(dict.fromkeys(nodes, ReadyMadeApp()), node_config=nodes)
        grid.contexts[1].run_config = settings.to_config()
        if forgets:
            push = grid.push_messages

            def forgetful(messages, grid=grid, push=push):
                grid.forget(1)
                grid.apps[1] = ReadyMadeApp()
                return push(messages)

            grid.push_messages = forgetful
        run_server(grid, settings, Home(folder))
        results.append(read_json(folder / "result.json"))
        assert len(list((folder / "state").glob("*.npz"))) == 1
    assert results[0]["model"] == results[1]["model"]
    assert not results[1]["bad_replies"]
    own = load_model(tmp_path / "True" / "s3")
    assert own.scaling is not None
    with pytest.raises(PsofedError, match=r"is the folder of a gateway; name one of its clients \(s0, "):
        load_model(tmp_path / "True")


def test_a_long_lived_gateway_learns_from_each_row_as_it_arrives(tmp_path):
    path = write_table(tmp_path / "all.csv", STATIONS[:2], count=40)
    grid, _ = federate(tmp_path, {1: gateway(path)}, 2, 1, samples_per_round=0)
    app, context = ReadyMadeApp(), grid.contexts[1]
    assert app.learn_arrived(context) == 0
    with path.open("a") as file:
        file.writelines(rows_of(["s1", "s7"], 5))
    assert app.learn_arrived(context) == 5  # s7 has not been drawn yet: it has no model to learn on
    assert read_stream(memory_of(context).of("s1").records).position.samples == 45


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_shared_table_gives_each_client_its_own_rows(tmp_path, kind):
    path = write_table(tmp_path / "all.csv", STATIONS, count=7)
    if kind == "parquet":
        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv(path), tmp_path / "all.parquet")
        path = tmp_path / "all.parquet"
    table = TableSource(path, 2, "y", ("a", "b"), "station")
    shared = SharedTable(table)
    assert shared.names() == tuple(STATIONS)
    for station in STATIONS:
        alone = TableSource(path, 2, "y", ("a", "b"), "station", station).read(Position(), 100)
        first = shared.source(station).read(Position(), 3)
        rest = shared.source(station).read(first.end_after(Position()), 100)
        np.testing.assert_array_equal(np.concatenate([first.inputs, rest.inputs]), alone.inputs)
        again = (
            SharedTable(table).source(station).read(first.end_after(Position()), 100)
        )  # in another process
        np.testing.assert_array_equal(again.targets, rest.targets)


def test_a_file_that_is_replaced_lets_clients_leave_and_bad_rows_are_their_clients_own(tmp_path):
    path = write_table(tmp_path / "all.csv", ["a", "b"], count=3)
    shared = SharedTable(TableSource(path, 2, "y", ("a", "b"), "station"))
    before = shared.source("b").read(Position(), 100)
    write_table(path, ["b", "c"], count=2, seed=5)
    with path.open("a") as file:
        file.write("b,1,oops,3\n,1,2,3\nb,1,2,3\n")
    assert shared.names() == ("b", "c")
    after = shared.source("b").read(before.end_after(Position()), 100)
    assert len(after) == 3
    assert after.end_after(Position()).skipped == 1
    assert "oops" in after.problem


def test_a_row_of_a_client_that_no_gateway_can_have_stops_no_other(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("psofed.federation.client.shared_table.MAX_CLIENTS", 2)
    path = write_table(tmp_path / "all.csv", ["a", "x" * 101, "b", "c"], count=2)
    shared = SharedTable(TableSource(path, 2, "y", ("a", "b"), "station"))
    for _ in range(2):  # before the first round, and after it
        assert shared.names() == ("a", "b")
        assert len(shared.source("b").read(Position(), 100)) == 2
    assert [line.count("skipping") for line in caplog.messages] == [1, 1]


@pytest.mark.parametrize("seed", range(3))
def test_a_client_that_floods_the_table_costs_no_other_time_and_nobody_a_row(tmp_path, monkeypatch, seed):
    """However rows and reads alternate, all get their rows in order, and who keeps up need not scan the file."""
    monkeypatch.setattr("psofed.federation.client.shared_table._MOST_ROWS", 90)
    scans = []
    read = TableSource.read
    monkeypatch.setattr(
        TableSource, "read", lambda self, *rest: scans.append(self.client) or read(self, *rest)
    )
    rng, path = np.random.default_rng(seed), tmp_path / "all.csv"
    path.write_text("station,x,y\n")
    shared = SharedTable(TableSource(path, 1, "y", ("x",), "station"))
    written, taken, ends = {}, {}, {}
    for turn in range(60):
        with path.open("a") as file:
            for client in rng.permutation(["a", "b", *["flood"] * int(rng.integers(180)) * (turn < 40)]):
                written.setdefault(client, []).append(len(written.get(client, [])))
                file.write(f"{client},1,{written[client][-1]}\n")
        shared.names()
        for client in ("a", "b", "flood"):
            start = ends.get(client, Position())
            found = shared.source(client).read(start, 9 if client != "flood" else int(rng.integers(270)))
            if rng.random() < 0.8:  # otherwise its training fails, and it reads the same again
                ends[client] = found.end_after(start)
                taken.setdefault(client, []).extend(map(int, found.targets))
    while len(found := shared.source("flood").read(ends["flood"], 150)):
        ends["flood"] = found.end_after(ends["flood"])
        taken["flood"].extend(map(int, found.targets))
    assert taken["flood"] == written["flood"]
    assert all(taken[client] == written[client][: len(taken[client])] for client in ("a", "b"))
    assert min(len(taken["a"]), len(taken["b"])) > 50
    assert scans.count("a") + scans.count("b") <= 2  # while the table seems to have one client only


def test_a_full_queue_costs_time_and_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr("psofed.federation.client.shared_table._MOST_ROWS", 4)
    path = write_table(tmp_path / "all.csv", STATIONS, count=5)
    shared = SharedTable(TableSource(path, 2, "y", ("a", "b"), "station"))
    for station in STATIONS:
        position, count = Position(), 0
        while len(piece := shared.source(station).read(position, 2)):
            position, count = piece.end_after(position), count + len(piece)
            shared.names()
        assert count == 5


def test_a_synthetic_run_refuses_a_gateway(tmp_path):
    path = write_table(tmp_path / "all.csv", STATIONS)
    nodes = {1: gateway(path), 2: {"partition": 1}}
    _, result = federate(tmp_path, nodes, 2, 2, synthetic=True)
    assert "is a gateway" in result["nodes"]["1"]["error"]
    assert result["nodes"]["2"]["examples"]


def test_status_names_the_clients_of_gateways():
    node = {"name": "gate", "status": "online", "last_seen": 0.0, "last_round": 0}
    run = {
        "state": "running", "round": 4, "rounds": 9, "seen": {"a": 4, "b": 3},
        "gateways": {"gate": ["a", "b"]}, "refused": {"gate": ["c"]},
    }  # fmt: skip
    lines = status_lines(
        {
            "server": "here", "nodes": [node], "run": run, "checkpoint": None, "traffic": None, "suspects": {},
            "bad_replies": {"b": {"nan": 2}},
        },
        now=0.0,
    )  # fmt: skip
    text = "\n".join(lines)
    assert "  a " in text
    assert "2 nan" in next(line for line in lines if line.startswith("  b "))
    assert "gate: refused clients: c" in text
