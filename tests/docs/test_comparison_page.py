"""Pages that compare: every place for a table has one, and peers are installed by name."""

import importlib.util
import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docs]

ROOT = Path(__file__).parents[2]


def test_every_place_for_a_table_has_one():
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    places = re.findall(r"<!-- bench:(\S+) .*?-->(.*?)<!-- /bench:\1 -->", page, flags=re.S)
    assert {name for name, _ in places} >= {"peers-errors", "peers-rates"}
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
