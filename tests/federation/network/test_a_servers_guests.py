"""Nodes as real processes that learn from data of their own: gateways, and a slow one."""

import pytest
from stations import STATIONS, federate, gateway, settings_of, write_table

from psofed import Scenario
from psofed.federation.deploy.settings import RunSettings

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.takes(20)]


def test_gateways_in_processes_of_their_own_learn_the_same(server, tmp_path):
    """Half of the clients take part, drawn and masked by numbers that follow from the gateways' keys."""
    options = {"min_nodes": 2, "features": ("a", "b"), "target_column": "y"}
    with server.lend_server(tmp_path, "gate-0", "gate-1") as deployed:
        tables = [
            write_table(tmp_path / f"{k}.csv", STATIONS[3 * k : 3 * k + 3], count=30, seed=k) for k in (0, 1)
        ]
        for k, table in enumerate(tables):
            deployed.start_node(k, "--data", table, "--client-column", "station")
        result = deployed.run_to_the_end(settings_of(3, 6, **options))
        numbers = [deployed.number(k) for k in (0, 1)]
        assert deployed.status()["gateways"] == {"gate-0": STATIONS[:3], "gate-1": STATIONS[3:]}
    nodes = {number: gateway(table) for number, table in zip(numbers, tables, strict=True)}
    _, expected = federate(tmp_path / "here", nodes, 3, 6, **options)
    assert result["model"] == expected["model"]
    assert [record["participants"] for record in result["history"]] == [
        record["participants"] for record in expected["history"]
    ]


def test_a_slow_node_counts_late_and_costs_nobody_a_round(server, tmp_path, monkeypatch):
    """Its data take three seconds to read; the others answer round after round."""
    (tmp_path / "streams.py").write_text(
        "import time\nimport numpy as np\n\n\ndef stream(partition, start):\n"
        "    rng = np.random.default_rng(partition)\n"
        "    while True:\n"
        "        if partition == 3:\n            time.sleep(3.0)\n"
        "        x = rng.standard_normal(2)\n        yield x, x @ [1.0, -1.0]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    scenario = Scenario(
        num_clients=4, dimension=2, num_shared=1, num_participants=4, iterations=12, stepsize=0.1
    )
    limits = {"late_weight": 0.5, "grace": 0.0, "rest_rounds": 0}
    with server.lend_server(tmp_path, "fast-0", "fast-1", "fast-2", "slow") as deployed:
        for k in range(4):
            deployed.start_node(k, "--data", "streams:stream")
        settings = RunSettings(scenario=scenario, samples_per_round=1, min_nodes=4, interval=1.0, **limits)
        result = deployed.run_to_the_end(settings)
    late = [record for record in result["history"] if "slow" in record.get("late", {})]
    assert late
    assert all(1 <= record["late"]["slow"] <= 20 and "slow" in record["accepted"] for record in late)
    assert set(result["bad_replies"].get("slow", {})) <= {"no-reply"}
