"""Rules and attacks against ByzFL's, on random inputs; runs where the extra ``byzfl`` is installed."""

import itertools
import warnings

import numpy as np
import pytest

from psofed import Aggregation
from psofed.parts.aggregations import (
    MDA,
    CentredClipping,
    GeometricMedian,
    Krum,
    MeaMed,
    Mean,
    Median,
    MultiKrum,
    NormClipping,
    TrimmedMean,
)
from psofed.parts.attacks import InnerProduct, LittleIsEnough
from psofed.parts.plain import combine_uploads, corrupt_uploads, mix_uploads
from psofed.parts.pre_aggregations import ARC, NNM, Bucketing

pytestmark = pytest.mark.parts

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    byzfl = pytest.importorskip("byzfl", reason="pip install -e '.[byzfl]'", exc_type=ImportError)

SHAPES = [(5, 3), (8, 1), (11, 6), (25, 5)]


def random_uploads(participants: int, dimension: int) -> np.ndarray:
    rng = np.random.default_rng(participants)
    uploads = rng.normal(size=(participants, dimension))
    uploads[0] += 20.0
    return uploads


def ours(rule: Aggregation, uploads: np.ndarray) -> np.ndarray:
    """From a server at 0, so that models are updates, as ByzFL has them."""
    return combine_uploads(rule, uploads, np.zeros(uploads.shape[1]))


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize("f", [0, 1, 2])
def test_rules_are_byzfls_on_random_inputs(participants: int, dimension: int, f: int) -> None:
    x = random_uploads(participants, dimension)
    assert np.allclose(ours(Mean(), x), byzfl.Average()(x))
    assert np.allclose(ours(Median(), x), byzfl.Median()(x))
    assert np.allclose(ours(TrimmedMean(trim=f), x), byzfl.TrMean(f)(x))
    # Iterated until both stand still; where they start from does not matter then, unless all points between the middle
    # two of an even number on a line are as good.
    found = ours(GeometricMedian(smoothing=0.05, tolerance=1e-12), x)
    expected = byzfl.GeometricMedian(nu=0.05, T=2000)(x)
    if dimension == 1 and participants % 2 == 0:
        low, high = np.sort(x[:, 0])[participants // 2 - 1 : participants // 2 + 1]
        assert all(low <= point[0] <= high for point in (found, expected))
    else:
        assert np.allclose(found, expected, atol=1e-6)
    clipped = byzfl.CenteredClipping(L=f + 1, tau=1.5)(x)
    assert np.allclose(ours(CentredClipping(radius=1.5, iterations=f + 1), x), clipped)
    bound = float(np.median(np.linalg.norm(x, axis=1)))
    assert np.allclose(ours(NormClipping(), x), np.mean(byzfl.Clipping(c=bound)(x), axis=0))


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize("f", [0, 1, 2])
def test_mean_around_the_median_and_minimum_diameter_are_byzfls(participants: int, dimension: int, f: int) -> None:
    """Of subsets of equal diameter ByzFL takes the first and psofed the tightest: compared are the diameters."""
    x = random_uploads(participants, dimension)
    assert np.allclose(ours(MeaMed(tolerated=f), x), byzfl.Meamed(f)(x))
    if f == 0 or dimension == 1:
        assert np.allclose(ours(MDA(tolerated=f), x), byzfl.MDA(f)(x))
    kept = participants - f
    diameters = {}
    for subset in itertools.combinations(range(participants), kept):
        chosen = x[list(subset)]
        width = np.linalg.norm(chosen[:, None] - chosen[None], axis=2).max()
        diameters[tuple(chosen.mean(axis=0).round(9))] = width
    for found in (ours(MDA(tolerated=f), x), byzfl.MDA(f)(x)):
        assert np.isclose(diameters[tuple(found.round(9))], min(diameters.values()))


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize("f", [0, 1, 2])
def test_pre_aggregations_are_byzfls(participants: int, dimension: int, f: int) -> None:
    x, server, uniforms = random_uploads(participants, dimension), np.zeros(dimension), np.zeros(participants)
    assert np.allclose(mix_uploads(NNM(tolerated=f), x, server, uniforms=uniforms), byzfl.NNM(f)(x.copy()))
    assert np.allclose(mix_uploads(ARC(tolerated=f), x, server, uniforms=uniforms), byzfl.ARC(f)(x.copy()))
    # Shuffled in the same way.
    np.random.seed(f)  # noqa: NPY002 (ByzFL draws from it)
    order = np.random.permutation(participants)  # noqa: NPY002
    uniforms[order] = np.arange(participants) / participants
    np.random.seed(f)  # noqa: NPY002
    theirs = byzfl.Bucketing(f + 1)(x.copy())
    assert np.allclose(mix_uploads(Bucketing(size=f + 1), x, server, uniforms=uniforms), theirs)


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize("f", [0, 1])
def test_krum_is_byzfls_where_as_many_neighbours_count(participants: int, dimension: int, f: int) -> None:
    """Blanchard et al. count the P − f − 2 nearest, ByzFL the P − f − 1 nearest: its f is ours + 1."""
    x = random_uploads(participants, dimension)
    assert np.allclose(ours(Krum(tolerated=f), x), byzfl.Krum(f + 1)(x))
    selected = participants - f - 1
    assert np.allclose(ours(MultiKrum(tolerated=f, selected=selected), x), byzfl.MultiKrum(f + 1)(x))


@pytest.mark.parametrize(("participants", "dimension"), SHAPES)
@pytest.mark.parametrize(
    ("attack", "theirs"),
    [
        (LittleIsEnough(num_byzantine=1, deviations=1.5, statistics="honest"), lambda: byzfl.ALittleIsEnough(1.5)),
        (InnerProduct(num_byzantine=1, scale=2.0), lambda: byzfl.InnerProductManipulation(2.0)),
        (InnerProduct(num_byzantine=1, scale=1.0), lambda: byzfl.SignFlipping()),
    ],
    ids=repr,
)
def test_omniscient_attacks_are_byzfls(participants, dimension, attack, theirs) -> None:
    uploads, attacking = random_uploads(participants, dimension), np.arange(participants) == 0
    nothing = np.zeros_like(uploads)
    sent = corrupt_uploads(
        attack, uploads, attacking, server=nothing[0], clients=np.arange(participants), iteration=0, normals=nothing,
        common_normals=nothing[0],
    )[0]  # fmt: skip
    assert np.allclose(sent, theirs()(uploads[1:]))
