"""Every rule on small uploads, worked by hand, compiled and as plain Python."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from psofed import Aggregation, Data, InvalidValueError, NotCoveredError, Scenario, simulate
from psofed.parts.aggregations import (
    CGE,
    MDA,
    CentredClipping,
    FLTrust,
    GeometricMedian,
    Krum,
    MeaMed,
    Mean,
    Median,
    MultiKrum,
    NormClipping,
    Phocas,
    TrimmedMean,
)
from psofed.parts.aggregations.selecting import length_key
from psofed.parts.models import Rff
from psofed.parts.plain import combine_uploads
from psofed.scenario.changes import with_values

pytestmark = [pytest.mark.parts, pytest.mark.engine]

NAN = np.nan
SERVER = np.array([1.0, 1.0])
FIVE = np.array([[2.0, 0.0], [1.5, 1.0], [2.5, 2.0], [1.0, 1.5], [101.0, -99.0]])
SPARSE = np.array([[2.0, NAN], [NAN, 3.0], [4.0, NAN], [9.0, NAN]])
TWO_OF_FIVE = np.array([[3.0, 3.0], [2.0, 0.0], [NAN, NAN], [NAN, NAN], [NAN, NAN]])

# rule, uploads, what comes out
BY_HAND = [
    (Mean(), FIVE, [21.6, -18.9]),
    # Entry 0 was sent by three of four: 1 + (1 + 3 + 8)/4; entry 1 by one: 1 + 2/4.
    (Mean(), SPARSE, [4.0, 1.5]),
    (Median(), FIVE, [2.0, 1.0]),
    # Median 4 of three of four: 1 + ¾·3. One number alone is outvoted by the server, who stands in for two.
    (Median(), SPARSE, [3.25, 1.0]),
    # Of two numbers the one nearer to the server, 1 + ⅖·1, if both are on the same side of it.
    (Median(), TWO_OF_FIVE, [1.4, 1.0]),
    # With two participants in all there is nobody to miss: the mean of two, 1 + ½·(1 + 2).
    (Median(), TWO_OF_FIVE[:2], [2.5, 1.5]),
    # Without a quorum two numbers are two numbers, 1 + ⅖·1.5; with one of five the server outvotes both.
    (Median(quorum=1), TWO_OF_FIVE, [1.6, 1.2]),
    (Median(quorum=5), TWO_OF_FIVE, [1.0, 1.0]),
    (TrimmedMean(trim=1), FIVE, [2.0, 2.5 / 3]),
    (TrimmedMean(trim=0), FIVE, [21.6, -18.9]),
    # A quorum of five, but four participants: 1, 2, 4, 9, of which 2 and 4 are left: 1 + ¾·2. Entry 1: 1, 1, 1, 3.
    (TrimmedMean(trim=2), SPARSE, [2.5, 1.0]),
    # Entry 0: 1, 2, 3; entry 1: 0, 1, 3.
    (TrimmedMean(trim=1), TWO_OF_FIVE, [1.4, 1.0]),
    # Entry 0: 1, 1, 2, 3 without its ends; entry 1: 0, 1, 1, 3.
    (TrimmedMean(trim=1, quorum=4), TWO_OF_FIVE, [1.2, 1.0]),
    # Medians 2 and 1; the farthest, 101 and −99, are left out.
    (MeaMed(tolerated=1), FIVE, [1.75, 1.125]),
    # f = 2: 1.5, 2, 2.5; and 0, 1, 1.5, where 0 and 2 are equally near to 1 and the lower counts.
    (MeaMed(tolerated=2), FIVE, [2.0, 2.5 / 3]),
    # Entry 0: 2, 4, 9 without 9, of which three of four: 1 + ¾·2. Entry 1: 3 alone against 1 and 1.
    (MeaMed(tolerated=1), SPARSE, [2.5, 1.0]),
    (MeaMed(tolerated=1, quorum=1), SPARSE, [2.5, 1.5]),
    # Trimmed means 2 and 5/6; the farthest, 101 and −99, are left out.
    (Phocas(tolerated=1), FIVE, [1.75, 1.125]),
    (Phocas(tolerated=1), SPARSE, [2.5, 1.0]),
    # The longest update is the last one's. Of updates of 1, 2, 3 and 8 the first two stay, (1, 0) and (0, 2).
    (CGE(tolerated=1), FIVE, [1.75, 1.125]),
    (CGE(tolerated=2), SPARSE, [1.5, 2.0]),
    # Without the last one the largest squared distance is 4.25, of 0 and 2: f = 2 leaves 1, 3 and one of them.
    (MDA(tolerated=1), FIVE, [1.75, 1.125]),
    (MDA(tolerated=2), FIVE, [5.0 / 3, 1.5]),
    # Squared distances: 01 1.25, 02 4.25, 03 3.25, 12 2, 13 0.5, 23 2.5. f = 1: the two nearest of each,
    # scores 4.5, 1.75, 4.5, 3: participant 1.
    (Krum(tolerated=1), FIVE, [1.5, 1.0]),
    # f = 2: the nearest one, 1 and 3 tie at 0.5; as far from the server (0.5 each way): the first.
    (MultiKrum(tolerated=2), FIVE, [(1.5 + 1.0 + 2.0) / 3, (1.0 + 1.5 + 0.0) / 3]),
    (MultiKrum(tolerated=1, selected=1), FIVE, [1.5, 1.0]),
    (MultiKrum(tolerated=1, selected=2), FIVE, [1.25, 1.25]),
    (MultiKrum(tolerated=0, selected=5), FIVE, [21.6, -18.9]),
    # Three of four answered, with updates of 1, 3 and 8 in entry 0, one with 2 in entry 1.
    (GeometricMedian(smoothing=1e6), FIVE, [21.6, -18.9]),
    (GeometricMedian(smoothing=1e6), SPARSE, [4.0, 1.5]),
    # Norms √2, ½, √3.25, ½, 100√2; all but the last two are within 2; the last becomes (√2, −√2).
    (
        CentredClipping(radius=2.0, iterations=1),
        FIVE,
        [1 + (1 + 0.5 + 1.5 + 0 + 2**0.5) / 5, 1 + (-1 + 0 + 1 + 0.5 - 2**0.5) / 5],
    ),
    # With the median distance as its radius, one step is norm clipping at the median.
    (
        CentredClipping(factor=1.0, iterations=1),
        FIVE,
        [1 + (1 + 0.5 + 1.5 * (2 / 3.25) ** 0.5 + 0 + 1) / 5, 1 + (-1 + 0 + (2 / 3.25) ** 0.5 + 0.5 - 1) / 5],
    ),
    # The median norm is √2: (1.5, 1) and (100, −100) are brought to it.
    (
        NormClipping(factor=1.0),
        FIVE,
        [1 + (1 + 0.5 + 1.5 * (2 / 3.25) ** 0.5 + 0 + 1) / 5, 1 + (-1 + 0 + (2 / 3.25) ** 0.5 + 0.5 - 1) / 5],
    ),
]


@pytest.fixture(params=["plain", "compiled"])
def combine(request: pytest.FixtureRequest, run_rule: Callable) -> Callable[..., np.ndarray]:
    """The rule in both forms, on models of one trial."""
    if request.param == "plain":
        return combine_uploads

    def compiled(
        rule: Aggregation, uploads: np.ndarray, server: np.ndarray, own_step: np.ndarray | None = None
    ) -> np.ndarray:
        entries = np.repeat(np.arange(uploads.shape[1])[None, :, None], len(uploads), axis=0)
        step = None if own_step is None else own_step[:, None]
        return run_rule(rule, entries, uploads[:, :, None], server[:, None], own_step=step)[:, 0]

    return compiled


@pytest.mark.parametrize(("rule", "uploads", "expected"), BY_HAND)
def test_the_rule_gives_what_was_worked_out_by_hand(
    combine: Callable, rule: Aggregation, uploads: np.ndarray, expected: list
) -> None:
    assert np.allclose(combine(rule, uploads, SERVER), expected)


@pytest.mark.parametrize("count", [24, 25, 26, 101, 300])
def test_medians_and_trimmed_means_of_many_are_exact_in_whatever_order_they_come(combine: Callable, count: int) -> None:
    rng = np.random.default_rng(count)
    drawn, ramp = rng.standard_normal(count), np.arange(float(count))
    orders = [drawn, np.sort(drawn), -np.sort(drawn), np.ones(count), np.minimum(ramp, ramp[::-1])]
    orders += [rng.integers(0, values, count).astype(float) for values in (2, 5)]
    uploads = np.column_stack(orders)
    assert np.array_equal(combine(Median(), uploads, np.zeros(len(orders))), np.median(uploads, axis=0))
    trimmed = np.sort(uploads, axis=0)[7:-7].mean(axis=0)
    assert np.allclose(combine(TrimmedMean(trim=7), uploads, np.zeros(len(orders))), trimmed)


@pytest.mark.parametrize("count", range(3, 9))
def test_few_numbers_are_put_in_order_whatever_they_are(combine: Callable, count: int) -> None:
    """Comparisons that order all rows of zeros and ones order all numbers (Knuth's 0-1 principle)."""
    uploads = np.array(list(product((0.0, 1.0), repeat=count))).T
    for trim in range(1, (count + 1) // 2):
        found = combine(TrimmedMean(trim=trim), uploads, np.zeros(uploads.shape[1]))
        assert np.allclose(found, np.sort(uploads, axis=0)[trim : count - trim].mean(axis=0))


def test_the_geometric_median_of_three_on_a_line_is_the_middle_one(combine: Callable) -> None:
    uploads = np.array([[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]])
    middle = combine(GeometricMedian(smoothing=1e-6, tolerance=1e-9), uploads, np.zeros(2))
    assert np.allclose(middle, [2.0, 2.0], atol=1e-3)


def test_the_geometric_median_has_the_lowest_sum_of_distances(combine: Callable) -> None:
    uploads = np.random.default_rng(1).normal(size=(7, 3))
    middle = combine(GeometricMedian(smoothing=1e-9, tolerance=1e-12), uploads, np.zeros(3))

    def total(point: np.ndarray) -> float:
        return float(np.linalg.norm(uploads - point, axis=1).sum())

    for step in np.random.default_rng(2).normal(size=(200, 3)) * 1e-3:
        assert total(middle) <= total(middle + step)


def test_fltrust_follows_those_who_agree_with_the_servers_own_step(combine: Callable) -> None:
    step = np.array([2.0, 2.0])
    uploads = np.array([[4.0, 4.0], [2.0, 1.0], [0.0, 0.0], [NAN, 1.5]])
    # u_1 = (3, 3): trust 1, becomes (2, 2). u_2 = (1, 0): trust √½, becomes (2√2, 0). u_3: none.
    # u_4 has entry 1 alone: trust 1, becomes (0, 2). Four of four answered.
    expected = 1 + np.array([2 + 2, 2 + 2]) / (2 + 0.5**0.5)
    assert np.allclose(combine(FLTrust(), uploads, SERVER, step), expected)
    contrary = np.array([[0.0, 0.0], [NAN, 0.5]])
    assert np.array_equal(combine(FLTrust(), contrary, SERVER, step), SERVER)


def test_fltrust_is_refused_where_there_are_no_root_data() -> None:
    scenario = Scenario(
        num_clients=5,
        dimension=4,
        iterations=5,
        model=Rff(),
        data=Data(function="sinc", input_dimension=1),
        aggregation="fltrust",
    )
    with pytest.raises(NotCoveredError, match=r"fltrust"):
        simulate(scenario, trials=2)
    sketches = Scenario(num_clients=5, dimension=4, algorithm="qs-fed", aggregation="fltrust")
    with pytest.raises(NotCoveredError, match=r'"fltrust" .* "qs-fed"'):
        simulate(sketches, trials=2)


def test_another_rule_starts_from_its_own_options() -> None:
    scenario = Scenario(num_clients=5, dimension=2, aggregation=TrimmedMean(trim=2))
    assert scenario.replace(aggregation="krum").aggregation == Krum(tolerated=1)
    changed = with_values(scenario, {"aggregation": "multi-krum", "aggregation_options.selected": 3})
    assert changed.aggregation == MultiKrum(tolerated=1, selected=3)
    assert with_values(scenario, {"aggregation": "trimmed-mean"}).aggregation == TrimmedMean(trim=2)
    assert with_values(scenario, {"aggregation": Krum(tolerated=2)}).aggregation == Krum(tolerated=2)


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"aggregation must be .*psofed.aggregations"):
        Scenario(num_clients=5, dimension=2, aggregation=Rff())


def test_mda_refuses_more_subsets_than_it_can_try_by_name() -> None:
    MDA(tolerated=5).check_participants(16)
    with pytest.raises(InvalidValueError, match=r"aggregation_options.tolerated must be .*593,775"):
        Scenario(num_clients=50, dimension=2, num_participants=30, aggregation=MDA(tolerated=6))


@pytest.mark.parametrize("excess", [-4e-15, 0.0, 4e-15])
def test_a_rounding_error_in_a_diameter_does_not_decide_in_mda(combine: Callable, excess: float) -> None:
    """Without the second or the third update the diameter is 3; without the third, the sum is smaller."""
    changes = np.array([[0.0, 0.0], [3.0 + excess, 0.0], [0.0, 3.0], [1.0, 0.5]])
    assert np.allclose(combine(MDA(tolerated=1), changes, np.zeros(2)), [4.0 / 3, 0.5 / 3])
    # Diameter and sum are equal: the first way leaves out the first update.
    changes = np.array([[-1.0 + excess], [0.0], [1.0]])
    assert np.allclose(combine(MDA(tolerated=1), changes, np.zeros(1)), 0.5)


def test_a_distant_update_does_not_make_the_others_equal_in_mda(combine: Callable) -> None:
    changes = np.array([[1e12], [5.0], [0.0], [0.1], [0.2]])
    assert np.allclose(combine(MDA(tolerated=2), changes, np.zeros(1)), 0.1)


@pytest.mark.parametrize("size", [0.1, 1.0, 3.0, 12345.678])
def test_lengths_that_differ_by_rounding_alone_count_as_equal(size: float) -> None:
    key = length_key(np.array([size, -size]))
    assert key == np.float32(key) == pytest.approx(np.sqrt(2) * size, rel=1e-7)
    assert length_key(np.array([size, -size]) * (1 + 4e-16)) == key
