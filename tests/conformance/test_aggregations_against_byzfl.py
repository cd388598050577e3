"""Rules and attacks against ByzFL's, on random inputs; runs where the extra ``byzfl`` is installed."""

import warnings

import numpy as np
import pytest

from psofed import Attack
from psofed.parts.options import make_options
from psofed.parts.registry import load_part

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    byzfl = pytest.importorskip("byzfl", reason="pip install psofed[byzfl]", exc_type=ImportError)

SHAPES = [(5, 3), (8, 1), (11, 6), (25, 5)]


def random_uploads(participants: int, dimension: int) -> np.ndarray:
    rng = np.random.default_rng(participants)
    uploads = rng.normal(size=(participants, dimension))
    uploads[0] += 20.0
    return uploads


def ours(rule: str, uploads: np.ndarray, **options: float) -> np.ndarray:
    """From a server at 0, so that models are updates, as ByzFL has them."""
    checked = make_options("aggregations", rule, options, "")
    return np.asarray(load_part("aggregations", rule).combine(uploads, np.zeros(uploads.shape[1]), checked))


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize("f", [0, 1, 2])
def test_rules_are_byzfls_on_random_inputs(participants: int, dimension: int, f: int) -> None:
    x = random_uploads(participants, dimension)
    assert np.allclose(ours("mean", x), byzfl.Average()(x))
    assert np.allclose(ours("median", x), byzfl.Median()(x))
    assert np.allclose(ours("trimmed-mean", x, trim=f), byzfl.TrMean(f)(x))
    median = byzfl.GeometricMedian(nu=0.05, T=f + 1)(x)
    assert np.allclose(ours("geometric-median", x, smoothing=0.05, iterations=f + 1), median)
    clipped = byzfl.CenteredClipping(L=f + 1, tau=1.5)(x)
    assert np.allclose(ours("centred-clipping", x, radius=1.5, iterations=f + 1), clipped)
    bound = float(np.median(np.linalg.norm(x, axis=1)))
    assert np.allclose(ours("norm-clipping", x), np.mean(byzfl.Clipping(c=bound)(x), axis=0))


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize("f", [0, 1])
def test_krum_is_byzfls_where_as_many_neighbours_count(participants: int, dimension: int, f: int) -> None:
    """Blanchard et al. count the P − f − 2 nearest, ByzFL the P − f − 1 nearest: its f is ours + 1."""
    x = random_uploads(participants, dimension)
    assert np.allclose(ours("krum", x, tolerated=f), byzfl.Krum(f + 1)(x))
    selected = participants - f - 1
    assert np.allclose(ours("multi-krum", x, tolerated=f, selected=selected), byzfl.MultiKrum(f + 1)(x))


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize(
    ("kind", "options", "theirs"),
    [
        ("little-is-enough", {"deviations": 1.5}, lambda: byzfl.ALittleIsEnough(1.5)),
        ("inner-product", {"scale": 2.0}, lambda: byzfl.InnerProductManipulation(2.0)),
        ("inner-product", {"scale": 1.0}, lambda: byzfl.SignFlipping()),
        ("mimic", {}, lambda: byzfl.Mimic(0)),
    ],
)
def test_omniscient_attacks_are_byzfls(participants, dimension, kind, options, theirs) -> None:
    uploads, attacking = random_uploads(participants, dimension), np.arange(participants) == 0
    attack, nothing = Attack(num_byzantine=1, kind=kind, **options), np.zeros_like(uploads)
    sent = load_part("attacks", kind).corrupt(attack, uploads, attacking, nothing[0], nothing, nothing[0])[0]
    assert np.allclose(sent, theirs()(uploads[1:]))
