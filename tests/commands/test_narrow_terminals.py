"""At 80 columns no line of any command is longer; `--wide` and `--json` have what was left out."""

import json

import numpy as np
import pytest

from psofed.scenario.file import EXAMPLE

pytestmark = [pytest.mark.cli, pytest.mark.takes(20)]

GRID = """
trials = 4
[base]
num_clients = 20
dimension = 5
iterations = 200
attack.num_byzantine = 5
[grid]
num_shared = [1, 5]
aggregation = ["mean", "median", "trimmed-mean"]
attack.kind = ["gaussian", "sign-flip"]
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "scenario.toml").write_text(EXAMPLE.replace("iterations = 3000", "iterations = 200"))
    (tmp_path / "grid.toml").write_text(GRID)
    rng = np.random.default_rng(0)
    lines = ["client,a,b,c,y"]
    for _ in range(80):
        for client in range(12):
            x = rng.standard_normal(3)
            y = x.sum() * (-1 if client == 11 else 1) + rng.standard_normal()
            lines.append(f"weather station {client},{x[0]:.3f},{x[1]:.3f},{x[2]:.3f},{y:.3f}")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMANDS = (
    ("simulate", "scenario.toml", "--trials", 4),
    ("predict", "scenario.toml"),
    ("predict", "scenario.toml", "--theory", "paper"),
    ("compare", "scenario.toml", "--trials", 4),
    ("tune", "scenario.toml"),
    ("sweep", "grid.toml"),
    ("advise", "--data", "table.csv", "--client-column", "client", "--target-column", "y"),
    ("reproduce", "fig3", "--trials", 2),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(map(str, command[:2])))
def test_every_line_fits_80_columns(files, psofed_command, command):
    done = psofed_command(*command)
    assert done.returncode in (0, 1), done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_wide_and_json_have_what_was_left_out(files, psofed_command):
    command = ("tune", "scenario.toml")
    narrow, wide = psofed_command(*command).stdout, psofed_command(*command, "--wide").stdout
    assert "Not shown (--wide or wide=True shows all): server MSD" in narrow.replace("\n  ", " ")
    assert "Not shown" not in wide
    assert max(map(len, wide.splitlines())) > 80
    assert "numbers_per_iteration" in json.dumps(json.loads(psofed_command(*command, "--json").stdout))
