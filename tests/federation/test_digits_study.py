"""The study of docs/deep.md at toy size: the real strategies on the grid do what the direct run does."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.federation

FOLDER = Path(__file__).parents[2] / "examples" / "digits"
TOY = {"rounds": 3, "look_every": 1}


@pytest.fixture
def study(monkeypatch):
    """The study's modules, which lie beside each other as scripts do."""
    pytest.importorskip("sklearn")
    names = ("network", "direct", "federations", "study")
    monkeypatch.syspath_prepend(str(FOLDER))
    modules = {name: __import__(name) for name in names}
    yield modules
    for name in names:
        sys.modules.pop(name, None)


def both_ways(study, method, attack, clients=20, each=12):
    federations, network = study["federations"], study["network"]
    run, model = federations.run_federation(
        method, attack, 7, network.learn_with_numpy, **TOY, clients=clients, each=each
    )
    digits = network.split_digits(7, clients, each)
    direct, expected = study["direct"].run_directly(method, attack, 7, digits, **TOY)
    return run, model, direct, expected


@pytest.mark.parametrize(
    ("kind", "shared", "rule"),
    [
        ("psofed", 0.1, "mean"),
        ("psofed", 0.1, "geometric-median"),
        ("fedavg", 1.0, "mean"),
        ("fedmedian", 1.0, "mean"),
        ("multi-krum", 1.0, "mean"),
    ],
)
def test_the_direct_run_is_the_federation(study, kind, shared, rule):
    method = study["direct"].Method(kind, shared, rule)
    run, model, direct, expected = both_ways(study, method, study["study"].ATTACKS["gaussian"])
    np.testing.assert_allclose(model, expected, rtol=0, atol=2e-6)
    assert run.rounds == direct.rounds == [0, 1, 2, 3]
    np.testing.assert_allclose(run.accuracy, direct.accuracy, atol=0.002)
    assert run.own_accuracy == pytest.approx(direct.own_accuracy, abs=0.002)
    if kind == "psofed":
        assert np.all(np.diff(run.bytes) > 20 * 8 * shared * study["network"].DIMENSION)


def test_sharing_everything_is_fedavg(study):
    make = study["direct"].Method
    _, fedavg, _, _ = both_ways(study, make("fedavg"), None, clients=5)
    _, psofed, _, _ = both_ways(study, make("psofed", 1.0), None, clients=5)
    np.testing.assert_allclose(psofed, fedavg, rtol=0, atol=1e-6)


def test_a_split_is_uneven_by_label_and_even_in_number(study):
    digits = study["network"].split_digits(0)
    assert digits.images.shape == (20, 40, 64)
    assert len(digits.test_labels) == 1797 - 800
    most = [np.bincount(labels).max() for labels in digits.labels]
    assert np.mean(most) > 12  # 4 of each label if they were dealt evenly


def test_pytorch_takes_the_steps_that_are_written_out(study):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (psofed[torch])")
    torch.set_num_threads(1)
    network = study["network"]
    digits, start = network.split_digits(0), network.initial_weights(0)
    given = digits.images[0], digits.labels[0], 0.3, 4
    np.testing.assert_allclose(
        network.learn_with_torch(start, *given), network.learn_with_numpy(start, *given), rtol=0, atol=1e-6
    )
