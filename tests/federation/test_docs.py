"""The federation's documents tell the truth: examples run, options are explained, vectors are those of the code."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import psofed.federation
from psofed.federation.protocol.masks import DerivedMasks, derive_words
from psofed.federation.server.clients import KINDS

pytestmark = pytest.mark.federation

DOCS = Path(__file__).parents[2] / "docs"
WIRE = (DOCS / "wire.md").read_text(encoding="utf-8")
MODULES = [m.name for m in pkgutil.walk_packages(psofed.federation.__path__, "psofed.federation.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


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
