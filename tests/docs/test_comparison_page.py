"""Pages that compare: operations in their sentences are those that are counted, and peers are installed by name."""

import importlib.util
import re
from pathlib import Path

import pytest

from psofed.paper.cost_claims import count_for, works
from psofed.paper.figures import load_figure
from psofed.reference.operations import count_operations
from psofed.scenario.changes import with_values

pytestmark = [pytest.mark.docs, pytest.mark.reference, pytest.mark.paper]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def prose():
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    return re.sub(r"<!-- bench:(\S+) .*?-->.*?<!-- /bench:\1 -->", "", page, flags=re.S)


def test_operations_named_on_the_page_are_those_counted(prose):
    costs = {name: works(cost) for name, cost in count_for(load_figure("fig1").base).items()}
    for name in ("PSO-Fed", "CS-Fed"):
        for key in (("clients", "exchange"), ("clients", "iteration"), ("both", "iteration")):
            assert f"{costs[name][key]:,g}" in prose
    assert f"{costs['CS-Fed']['server', 'exchange']:,g}" in prose


def test_four_decoding_steps_are_the_most_that_keep_cs_fed_below_pso_fed():
    base = load_figure("fig1").base
    ours = works(count_operations(base))["both", "iteration"]
    totals = [
        works(count_operations(with_values(base, {"algorithm": "cs-fed", "algorithm_options.decoding_steps": steps})))
        for steps in (4, 5)
    ]  # fmt: skip
    assert totals[0]["both", "iteration"] < ours < totals[1]["both", "iteration"]


def test_every_place_for_a_table_has_one():
    pages = [
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("comparison.md", "algorithms.md")
    ]
    places = re.findall(r"<!-- bench:(\S+) .*?-->(.*?)<!-- /bench:\1 -->", "".join(pages), flags=re.S)
    assert {name for name, _ in places} == {"peers-errors", "peers-rates", "costs"}
    assert all(table.count("\n|") > 3 for _, table in places)


def test_peers_are_installed_by_name_and_version_from_wherever_pip_looks():
    file = ROOT / "benchmarks" / "peers" / "_environments.py"
    spec = importlib.util.spec_from_file_location("_environments", file)
    environments = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environments)
    for peer in environments.PEERS:
        assert peer.script.is_file()
        words = [word for call in peer.installs for word in call]
        assert any(re.fullmatch(r"[a-z0-9]+==[0-9.]+", word) for word in words)
        assert not any("/" in word or "index" in word for word in words)
