"""The federation's documents tell the truth: examples run, options are explained, vectors are those of the code."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import psofed.federation
from psofed.federation.protocol.masks import DerivedMasks, derive_words
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.checks import KINDS
from psofed.federation.testing import InProcessGrid

pytestmark = pytest.mark.federation

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "federation.md").read_text(encoding="utf-8")
WIRE = (DOCS / "wire.md").read_text(encoding="utf-8")
MODULES = [m.name for m in pkgutil.walk_packages(psofed.federation.__path__, "psofed.federation.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


def test_every_public_name_is_importable():
    for name in psofed.federation.__all__:
        assert getattr(psofed.federation, name).__doc__


def test_the_page_explains_every_kind_of_bad_reply():
    for kind, meaning in KINDS.items():
        assert f"| `{kind}` | {meaning} |" in WIRE


def test_the_pages_test_vectors_are_those_of_the_code():
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d) \| `([0-9a-f ]+)` \|$", WIRE, flags=re.M)
    assert len(rows) >= 3
    for seed, node, n, purpose, words in rows:
        derived = derive_words(int(seed), int(node), int(n), int(purpose), 4)
        assert " ".join(f"{int(word):016x}" for word in derived) == words
    masks = re.findall(
        r"^\| (\S+) \| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| `([0-9 ]+)` \|$", WIRE, re.M
    )
    assert len(masks) >= 4
    for pattern, coordinated, seed, dimension, shared, n, node, entries in masks:
        source = DerivedMasks(
            seed=int(seed), dimension=int(dimension), num_shared=int(shared), pattern=pattern,
            coordinated=coordinated == "yes",
        )  # fmt: skip
        assert " ".join(map(str, source.indices(int(n), int(node)))) == entries


def test_the_pages_example_runs(tmp_path, monkeypatch):
    """The Flower user's app, with scikit-learn's regressor for its model, on a Grid within this process."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    truth, rng = np.array([1.0, -2.0, 0.5]), np.random.default_rng(0)

    def make_model():
        model = linear_model.SGDRegressor(eta0=0.05, learning_rate="constant")
        model.coef_, model.intercept_ = np.zeros(3), np.zeros(1)
        return model

    def fit(model):
        x = rng.standard_normal((100, 3))
        model.partial_fit(x, x @ truth)

    monkeypatch.chdir(tmp_path)
    names = {"make_model": make_model, "fit": fit}
    exec(re.search(r"```python\n(.*?)```", PAGE, flags=re.S)[1], names)
    names["main"](InProcessGrid(dict.fromkeys((1, 2), names["client_app"])), None)
    state = CheckpointStore(tmp_path / "checkpoint.npz").load()
    np.testing.assert_allclose(state.model, [*truth, 0.0], atol=0.1)
    assert state.round_number == 100
