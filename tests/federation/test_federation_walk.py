"""The documents' walk for two machines, as written, with three stations and the scenario that psofed prints."""

import re
import sys

import numpy as np
import pytest
import typer

from psofed.cli.federation_run import _check_learned
from psofed.common.files import read_json
from psofed.federation.deploy.processes import Supervisor, flower_environment, free_port, wait_until

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.takes(23)]

PSOFED = [sys.executable, "-c", "from psofed.cli import main; main()"]
STATIONS = ("north", "south", "west")


def test_three_stations_learn_from_their_own_file(tmp_path, psofed_command, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def psofed(*arguments):
        done = psofed_command(*arguments)
        assert done.returncode == 0, done.stderr
        return done

    rng, lines = np.random.default_rng(0), ["time,station,note,pressure,wind,output"]
    for n in range(150):
        for station in STATIONS:
            pressure, wind = 101325 + 300 * rng.standard_normal(), 8 + 2 * rng.standard_normal()
            output = 0.02 * (pressure - 101325) + 4 * wind + rng.standard_normal()
            lines.append(f"2024-01-01 {n:05d},{station},all well,{pressure:.2f},{wind:.4f},{output:.4f}")
    (tmp_path / "readings.csv").write_text("\n".join(lines) + "\n")
    turned = [",".join(reversed(line.split(","))) for line in lines]  # found by name all the same
    (tmp_path / "west.csv").write_text("\n".join(turned) + "\n")
    nodes = [word for station in STATIONS for word in ("--node", station)]
    psofed("federation", "certs", "--home", "fed", "--host", "server.example", *nodes)
    (tmp_path / "scenario.toml").write_text(psofed("example").stdout)
    port, environment = str(free_port()), flower_environment(tmp_path / "flower")
    with Supervisor(tmp_path / "logs") as supervisor:

        def start(name, *arguments):
            places = ["--home", str(tmp_path / name)] if arguments[0] == "client" else []
            return supervisor.start(name, [*PSOFED, "federation", *arguments, *places], environment)

        server = start("server", "server", "--home", str(tmp_path / "fed"), "--port", port)
        wait_until(lambda: "listening on" in server.tail(), 120.0, "the server", supervisor.check)
        for station in STATIONS:
            keys = tmp_path / "fed" / "credentials"
            start(
                f"psofed-{station}",
                "client",
                *("--server", f"127.0.0.1:{port}", "--ca", str(keys / "ca.pem")),
                *("--key", str(keys / f"{station}.key"), "--data"),
                str(tmp_path / ("west.csv" if station == "west" else "readings.csv")),
                *("--target-column", "output"),
                *("--client-column", "station", "--client", station),
            )
        changes = ["--set", "dimension=2", "--set", "iterations=8", "--min-nodes", "3"]
        done = psofed("federation", "run", "scenario.toml", "--home", "fed", *changes)
        assert re.search("north.*: no new sample, 150 were read so far", done.stderr)
        supervisor.check()
    result = read_json(tmp_path / "fed" / "result.json")
    assert sorted(result["nodes"]) == list(STATIONS)
    assert result["examples"] == 3 * 130
    assert result["bad_replies"] == {}
    psofed("federation", "export", "--home", "fed", "--out", "model.npz", "--scaling", "psofed-north")
    assert result["columns"] == {"features": ["pressure", "wind"], "target": "output"}
    (tmp_path / "new.csv").write_text("wind,pressure\n8,101325\n10,101325\n")
    for model in ("model.npz", "psofed-west"):
        options = ["--model", model, "--data", "new.csv"]
        low, high = map(float, psofed("federation", "predict", *options).stdout.split())
        assert 29 < low < 35
        assert low + 3 < high < low + 12  # 8 more by 2 more of wind, as far as it was learned


def test_a_run_in_which_nobody_learned_anything_ends_with_code_1(capsys):
    _check_learned({"examples": 1})
    with pytest.raises(typer.Exit) as ended:
        _check_learned({"examples": 0})
    assert ended.value.exit_code == 1
    assert "nobody has learned anything" in capsys.readouterr().err
