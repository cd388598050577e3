"""Real nodes that are stopped, killed and started again while a run is on; and Flower's own among them."""

import json

import pytest
from deployments import NAMES, SCENARIO, three_nodes

from psofed.federation.deploy.processes import wait_until

NODES = len(NAMES)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with three_nodes(tmp_path_factory.mktemp("federation")) as deployed:
        yield deployed


def test_a_stopped_node_leaves_the_draw_and_a_restarted_one_comes_back(deployment):
    """SIGTERM, then kill -9, of the same node while a run is on; each time it is started again."""
    run = deployment.run(
        "run-restarts", SCENARIO.replace(num_participants=NODES, iterations=9999), "--deadline", "10"
    )

    def check():
        assert run.is_running, run.tail(40)

    wait_until(lambda: deployment.last_round_has("node-2"), 120.0, "the first rounds", check)
    deployment.nodes[2].process.terminate()
    wait_until(lambda: not deployment.nodes[2].is_running, 60.0, "the node to stop", check)
    assert deployment.nodes[2].process.returncode == 130
    wait_until(
        lambda: "node-2" not in deployment.status()["last"]["participants"], 60.0, "it to leave", check
    )
    deployment.start_node(2)
    wait_until(lambda: deployment.last_round_has("node-2"), 90.0, "it to be back", check)
    deployment.nodes[2].kill()
    deployment.start_node(2)
    wait_until(lambda: "connected" in deployment.nodes[2].tail(), 90.0, "it to connect", check)
    before = deployment.status()["round"]
    wait_until(
        lambda: deployment.last_round_has("node-2") and deployment.status()["round"] > before,
        90.0,
        "it to be back after a kill",
        check,
    )
    other = deployment.run("run-second", SCENARIO)  # while the first is going on
    wait_until(lambda: not other.is_running, 60.0, "the second run to be refused", check)
    assert "a run is going on" in other.tail()
    stop = deployment.psofed("stop", "stop", "--home", str(deployment.home.folder))
    wait_until(lambda: not stop.is_running and not run.is_running, 60.0, "the run to stop")
    assert (stop.process.returncode, run.process.returncode, other.process.returncode) == (0, 2, 2)
    assert "stopped after round" in run.tail()
    assert set(deployment.status()["conduct"]["counts"]) <= {"node-2"}
    home = str(deployment.home.folder)
    back = deployment.psofed("rollback", "rollback", "--to-round", "10", "--home", home)
    wait_until(lambda: not back.is_running, 60.0, "rollback")
    assert "back at round 10" in back.tail()
    result = deployment.finish(deployment.psofed("resume-2", "resume", "--rounds", "14", "--home", home))
    assert [record["round"] for record in result["history"]] == list(range(1, 15))
    assert result["history"][-1]["accepted"] == NAMES


def test_a_stock_supernode_works_beside_long_lived_nodes(deployment):
    deployment.nodes[1].process.terminate()
    wait_until(lambda: not deployment.nodes[1].is_running, 60.0, "the node to stop")
    deployment.start_node(1, "--supernode")
    run = deployment.run("run-mixed", SCENARIO.replace(num_participants=NODES, iterations=2))
    result = deployment.finish(run)
    assert [record["accepted"] for record in result["history"]] == [NAMES] * 2
    assert result["bad_replies"] == {}
    done = deployment.psofed("status", "status", "--home", str(deployment.home.folder), "--json")
    wait_until(lambda: not done.is_running, 60.0, "status")
    status = json.loads("{" + done.log.read_text().split("{", 1)[1])
    assert status["server"] == f"127.0.0.1:{deployment.port}"
    assert [node["name"] for node in status["nodes"]] == NAMES
    assert (status["run"]["state"], status["run"]["round"]) == ("finished", 2)
