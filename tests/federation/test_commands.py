"""``psofed federation …``: what commands print, and one line with exit code 2 for mistakes."""

import json
import subprocess
import sys

import pytest
from deployments import COMMAND, LocalHub, LocalServer, carry_out, nodes, synthetic

import psofed.cli
import psofed.cli.federation as new
from psofed.cli.federation import _Follower
from psofed.federation.deploy.home import FINISHED, Home
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.loop import describe_model

pytestmark = pytest.mark.federation


@pytest.fixture
def psofed_federation(monkeypatch, capsys, tmp_path):
    """Return a function that runs a command within this process, and returns its exit code, stdout and stderr."""
    monkeypatch.setitem(sys.modules, "psofed.cli.federation", new)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["psofed", "federation", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            psofed.cli.main()
        told = capsys.readouterr()
        return ended.value.code, told.out, told.err

    return call


def test_certs_are_made_listed_renewed_and_revoked(psofed_federation, tmp_path):
    code, out, _ = psofed_federation("certs", "--home", "fed", "--nodes", 2, "--gateway", "roof=10")
    assert code == 0
    assert "node-1" in out
    assert "10 clients" in out
    before = (tmp_path / "fed" / "credentials" / "node-0.pem").read_bytes()
    code, out, _ = psofed_federation("certs", "--home", "fed", "--renew", "node-0")
    assert "renewed" in out
    assert (tmp_path / "fed" / "credentials" / "node-0.pem").read_bytes() != before
    code, out, _ = psofed_federation("certs", "--home", "fed", "--renew", "all")
    assert out.count("renewed") == 5  # broker, server, node-0, node-1, roof
    code, out, _ = psofed_federation("revoke", "node-1", "--home", "fed")
    assert (code, out) == (0, "node-1 no longer has access (no server is running)\n")
    code, out, _ = psofed_federation("status", "--audit", "--home", "fed")
    assert "revoked  node node-1" in out
    code, out, err = psofed_federation("certs", "--home", "fed", "--node", "node-1")
    assert (code, out) == (2, "")
    assert "revoked" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("stop",), "there is no federation in psofed-federation; name its folder with --home"),
        (("stop", "--home", "fed"), "there is no run in fed"),
        (("resume", "--home", "fed"), "there is no run in fed"),
        (("rollback", "--home", "fed", "--to-round", "3"), "--to-round 3: must be a round with a checkpoint"),
        (("rollback", "--home", "fed"), "--to-round is required"),
        (("export", "--home", "fed", "--out", "m.json"), "there is no checkpoint"),
        (("server", "--home", "nowhere"), "`psofed federation certs --home nowhere` makes it"),
        (("server", "--metrics-host", "::"), "add --metrics-port"),
        (("server", "--home", "fed", "--broker", "mqtt://b:1"), "mqtts://HOST"),
        (("server", "--home", "fed", "--federation", "a/b"), "--federation"),
        (("revoke", "nobody", "--home", "fed"), "there is no certificate of 'nobody'"),
        (("certs", "--home", "fed", "--gateway", "a=1"), "NAME=N with N at least 2"),
        (("certs", "--home", "fed", "--node", "a/b"), "--node must be"),
        (("certs", "--home", "fed", "--renew", "nobody"), "there is no certificate of 'nobody'"),
        (("client", "--certificate", "c.pem"), "--broker is required"),
        (("run", "table.csv", "--home", "fed"), "psofed advise"),
        (("run", "--home", "fed"), "required"),
        (("predict", "--model", "none.json", "--data", "t.csv"), "cannot read none.json"),
        (("predict", "--model", "table.csv", "--data", "t.csv"), "not a model"),
        (("demo", "--nodes", "1"), "--nodes must be"),
    ],
)
def test_mistakes_end_with_one_line_and_code_2(psofed_federation, tmp_path, words, told):
    psofed_federation("certs", "--home", "fed")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    code, out, err = psofed_federation(*words)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--certificate", "none.pem"), "cannot read none.pem"),
        (("--certificate", "{good}", "--data", "scenario.toml"), "scenario.toml"),
        (("--certificate", "{good}", "--byzantine", "--attack", "nonsense"), "nonsense"),
        (("--certificate", "{good}", "--data", "nowhere_module:function"), "nowhere_module"),
        (("--certificate", "{good}", "--federation", "a b"), "--federation"),
    ],
)
def test_mistakes_of_a_node_end_its_process_with_one_line_and_code_2(psofed_federation, tmp_path, words, told):
    psofed_federation("certs", "--home", "fed", "--node", "a")
    (tmp_path / "scenario.toml").write_text("num_clients = 3\n")
    good = str(tmp_path / "fed" / "credentials" / "a.pem")
    given = [word.format(good=good) for word in words]
    done = subprocess.run(
        [*COMMAND, "client", "--broker", "mqtts://127.0.0.1:1", *given],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert told in done.stderr
    assert sum(line.startswith("psofed: ") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_run_is_submitted_followed_stopped_and_continued(psofed_federation, tmp_path):
    (tmp_path / "s.toml").write_text(
        "num_clients = 3\ndimension = 4\nnum_participants = 3\nnum_shared = 2\nstepsize = 0.2\niterations = 6\n"
    )
    server = LocalServer(tmp_path / "fed", nodes())
    server.start()
    try:
        code, out, err = psofed_federation("run", "s.toml", "--synthetic", "--home", "fed", "--json")
        assert code == 0, err
        assert json.loads(out)["rounds"] == 6
        assert "run submitted, waiting for a client, at most 120 s" in err
        code, _, err = psofed_federation("run", "s.toml", "--synthetic", "--home", "fed")
        assert code == 2
        assert "replace it with --force" in err
        code, out, _ = psofed_federation(
            "run", "s.toml", "--synthetic", "--home", "fed", "--force", "--rounds", 0, "--detach"
        )
        assert (code, out) == (0, "")
        code, out, _ = psofed_federation("stop", "--home", "fed")
        assert code == 0
        assert out.startswith("stopped ")
        code, out, _ = psofed_federation("resume", "--home", "fed", "--rounds", 60)
        assert (code, "After 60 rounds" in out) == (0, True)
        code, out, _ = psofed_federation("stop", "--home", "fed")
        assert out == "finished after round 60 already\n"
        code, out, _ = psofed_federation("status", "--runs", "--home", "fed", "--json")
        assert [record["event"] for record in json.loads(out)].count("finished") == 2
        code, out, _ = psofed_federation("status", "--health", "--home", "fed")
        assert (code, out) == (0, "healthy\n")
        code, out, _ = psofed_federation("rollback", "--to-round", 59, "--home", "fed")
        assert "back at round 59" in out
    finally:
        server.crash()
    code, out, _ = psofed_federation("status", "--health", "--home", "fed")
    assert (code, out) == (1, "not healthy\n")


def test_a_run_says_which_rule_it_uses_unless_the_scenario_names_a_robust_one(psofed_federation, tmp_path):
    (tmp_path / "fed").mkdir()
    text = "num_clients = 3\ndimension = 4\nnum_participants = 3\nnum_shared = 2\nstepsize = 0.2\n"
    for rule, told in (
        ("", "which resists a Byzantine node"),
        ('aggregation = "mean"\n', "one Byzantine node can lead the model away"),
        ('aggregation = "median"\n', ""),
    ):
        (tmp_path / "s.toml").write_text(text + rule)
        code, _, err = psofed_federation("run", "s.toml", "--home", "fed", "--force", "--detach")
        assert code == 0
        assert told in err
        psofed_federation("stop", "--home", "fed")


def test_a_followed_run_says_each_reason_once(capsys):
    follower = _Follower()
    for number, reason in enumerate(["no such column", "no such column", "cannot be read"], 1):
        last = {"round": number, "accepted": [], "participants": ["a", "b"], "seconds": 0.1, "remarks": {}}
        last |= {"dropped": {"a": "error", "b": "error"}, "reasons": {"a": reason, "b": reason}}
        follower({"round": number, "rounds": 3, "last": last})
    assert capsys.readouterr().err.splitlines() == [
        "round 1/3: 0 of 2 clients, 0.1 s; dropped a and b: error",
        "  a and b: no such column",
        "round 2/3: 0 of 2 clients, 0.1 s; dropped a and b: error",
        "round 3/3: 0 of 2 clients, 0.1 s; dropped a and b: error",
        "  a and b: cannot be read",
    ]


def test_the_demo_within_this_process(psofed_federation):
    code, out, err = psofed_federation("demo", "--in-process", "--rounds", 20)
    assert code == 0
    text = " ".join(out.split())
    assert "Over the last quarter, the server MSD is −11.6 dB; without protection, 0.6 dB." in text
    assert "Suspect: node-0, first in round 3, excluded at the end." in text
    assert "running 4 nodes within this process (as asked for)" in err
    code, out, _ = psofed_federation("demo", "--in-process", "--rounds", 6, "--json")
    assert json.loads(out)["payoff"].keys() == {"protected", "unprotected"}
    assert {"payoff", "seconds_per_round", "megabytes_per_node", "learning_curve"} <= json.loads(out).keys()


def test_an_exported_model_predicts_and_bad_ones_are_refused(psofed_federation, tmp_path):
    assert carry_out(Home(tmp_path / "fed"), synthetic(), LocalHub(nodes())) == FINISHED
    (tmp_path / "rows.csv").write_text("a,b,c,d\n1,2,3,4\n")
    code, out, _ = psofed_federation("export", "--home", "fed", "--out", "model.json")
    assert (code, "4 parameters, after round 8" in out) == (0, True)
    (tmp_path / "retained.json").write_bytes(
        describe_model(CheckpointStore(tmp_path / "fed" / "checkpoint.npz").load())
    )
    predictions = []
    for name in ("model.json", "retained.json"):
        code, out, _ = psofed_federation("predict", "--model", name, "--data", "rows.csv", "--json")
        predictions.append(json.loads(out)["predictions"])
    assert predictions[0] == predictions[1]
    document = json.loads((tmp_path / "model.json").read_text())
    for name, weights in (("nan", [float("nan")]), ("text", ["S100000000"]), ("matrix", [[1.0]])):
        (tmp_path / f"{name}.json").write_text(json.dumps({**document, "model": {"0": weights}}))
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "model.npz").write_bytes(b"PK")
    for name, told in (
        ("nan.json", "has values that are not finite"),
        ("matrix.json", "is not a list of weights"),
        ("text.json", "is not an exported model"),
        ("list.json", "is not an exported model"),
        ("model.npz", "not a model; give a .json file"),
    ):
        code, out, err = psofed_federation("predict", "--model", name, "--data", "rows.csv")
        assert (code, out) == (2, "")
        assert told in err
    (tmp_path / "huge.csv").write_text("a,b,c,d\n1e308,1e308,1e308,1e308\n1,2,3,4\n")
    code, _, err = psofed_federation("predict", "--model", "model.json", "--data", "huge.csv")
    assert code == 2


def test_help_and_the_options_import_neither_numpy_nor_a_transport():
    script = (
        "import sys, psofed.cli.federation\n"
        "print([name for name in ('numpy', 'paho', 'cryptography', 'flwr') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_a_node_imports_neither_flower_nor_a_command_line():
    script = (
        "import sys, psofed.federation.deploy.node\n"
        "heavy = ('flwr', 'grpc', 'typer', 'rich', 'scipy', 'pandas', 'xarray', 'matplotlib', 'numba', 'pyarrow')\n"
        "print([name for name in heavy if name in sys.modules], "
        "[name for name in sys.modules if name.startswith('psofed.federation.server')])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "[] []\n"
