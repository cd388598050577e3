"""Every rule on small uploads, worked by hand; the literal form of each is checked on the same numbers."""

import numpy as np
import pytest
from numba import njit

from psofed import (
    Data,
    InvalidValueError,
    Model,
    NotCoveredError,
    Scenario,
    UnknownFieldError,
    simulate,
)
from psofed.parts.aggregations._shared import RootData
from psofed.parts.options import make_options
from psofed.parts.registry import load_part
from psofed.reference.block_form import run_reference
from psofed.reference.draws import draw_trial
from psofed.scenario.file import with_values

NAN = np.nan
SERVER = np.array([1.0, 1.0])
FIVE = np.array([[2.0, 0.0], [1.5, 1.0], [2.5, 2.0], [1.0, 1.5], [101.0, -99.0]])
SPARSE = np.array([[2.0, NAN], [NAN, 3.0], [4.0, NAN], [9.0, NAN]])
SILENT = np.full((3, 2), NAN)


@njit
def call(hook, entries, sent, options, server):
    hook(entries, sent, options, server)


def run_rule(name: str, uploads: np.ndarray, server: np.ndarray, numbers: list[float]) -> np.ndarray:
    """The compiled hook on models; `uploads` holds NaN where an entry was not sent."""
    participants, dimension = uploads.shape
    entries = np.repeat(np.arange(dimension, dtype=np.int32)[None], participants, axis=0)[:, :, None]
    error = -server[:, None].copy()
    call(
        load_part("aggregations", name).aggregate.load(),
        entries,
        -uploads[:, :, None],
        np.array(numbers, dtype=np.float64),
        error,
    )
    return -error[:, 0]


def root_numbers(root: RootData, server: np.ndarray, target: np.ndarray) -> list[float]:
    # With the target at 0 the kernel's errors are the models' negatives, and ν = y.
    samples = np.column_stack([root.inputs, root.outputs - root.inputs @ target])
    return [root.stepsize / len(samples), len(samples), 0.0, *samples.ravel()]


# rule, its options, the numbers its hook is called with, uploads, what comes out
BY_HAND = [
    ("mean", {}, [], FIVE, [21.6, -18.9]),
    # Entry 0 was sent by three of four: 1 + (1 + 3 + 8)/4; entry 1 by one: 1 + 2/4.
    ("mean", {}, [], SPARSE, [4.0, 1.5]),
    ("median", {}, [], FIVE, [2.0, 1.0]),
    # Median 4 of three of four: 1 + ¾·3; entry 1: 1 + ¼·2.
    ("median", {}, [], SPARSE, [3.25, 1.5]),
    ("trimmed-mean", {"trim": 1}, [1], FIVE, [2.0, 2.5 / 3]),
    ("trimmed-mean", {"trim": 0}, [0], FIVE, [21.6, -18.9]),
    # Too few to trim two at either end: the median.
    ("trimmed-mean", {"trim": 2}, [2], SPARSE, [3.25, 1.5]),
    # Squared distances: 01 1.25, 02 4.25, 03 3.25, 12 2, 13 0.5, 23 2.5. f = 1: the two nearest of each,
    # scores 4.5, 1.75, 4.5, 3: participant 1.
    ("krum", {"tolerated": 1}, [1], FIVE, [1.5, 1.0]),
    # f = 2: the nearest one, 1 and 3 tie at 0.5; as far from the server (0.5 each way): the first.
    ("multi-krum", {"tolerated": 2}, [2, 0], FIVE, [(1.5 + 1.0 + 2.0) / 3, (1.0 + 1.5 + 0.0) / 3]),
    ("multi-krum", {"tolerated": 1, "selected": 2}, [1, 2], FIVE, [1.25, 1.25]),
    ("multi-krum", {"tolerated": 0, "selected": 5}, [0, 5], FIVE, [21.6, -18.9]),
    # One iteration from 0: weights 1/‖u‖, u/‖u‖ sum to (√½ + 1 + 3/√13 + 0 + √½, …); see the literal form.
    ("geometric-median", {"smoothing": 1e6, "iterations": 1}, [1e6, 1], FIVE, [21.6, -18.9]),
    # Norms √2, ½, √3.25, ½, 100√2; all but the last two are within 2; the last becomes (√2, −√2).
    (
        "centred-clipping",
        {"radius": 2.0, "iterations": 1},
        [2.0, 1],
        FIVE,
        [1 + (1 + 0.5 + 1.5 + 0 + 2**0.5) / 5, 1 + (-1 + 0 + 1 + 0.5 - 2**0.5) / 5],
    ),
    # The median norm is √2: (1.5, 1) and (100, −100) are brought to it.
    (
        "norm-clipping",
        {"factor": 1.0},
        [1.0],
        FIVE,
        [1 + (1 + 0.5 + 1.5 * (2 / 3.25) ** 0.5 + 0 + 1) / 5, 1 + (-1 + 0 + (2 / 3.25) ** 0.5 + 0.5 - 1) / 5],
    ),
]


@pytest.mark.parametrize(("rule", "given", "numbers", "uploads", "expected"), BY_HAND)
def test_the_rule_gives_what_was_worked_out_by_hand(
    rule: str, given: dict, numbers: list, uploads: np.ndarray, expected: list
) -> None:
    options = make_options("aggregations", rule, given, "")
    assert np.allclose(run_rule(rule, uploads, SERVER, numbers), expected)
    assert np.allclose(load_part("aggregations", rule).combine(uploads, SERVER, options), expected)


def test_the_geometric_median_of_three_on_a_line_is_the_middle_one() -> None:
    uploads = np.array([[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]])
    middle = run_rule("geometric-median", uploads, np.zeros(2), [1e-6, 200])
    assert np.allclose(middle, [2.0, 2.0], atol=1e-3)


def test_fltrust_follows_those_who_agree_with_the_servers_own_step() -> None:
    """From (1, 1) one root sample x = (1, 1), y = 6, μ = ½ asks for the step u_0 = ½·(6 − 2)·(1, 1) = (2, 2)."""
    root = RootData(np.array([[1.0, 1.0]]), np.array([6.0]), 0.5)
    options = make_options("aggregations", "fltrust", {}, "")
    uploads = np.array([[4.0, 4.0], [2.0, 1.0], [0.0, 0.0], [NAN, 1.5]])
    # u_1 = (3, 3): trust 1, becomes (2, 2). u_2 = (1, 0): trust √½, becomes (2√2, 0). u_3: none.
    # u_4 has entry 1 alone: trust 1, becomes (0, 2). Four of four answered.
    total = 2 + 0.5**0.5
    expected = 1 + np.array([2 + 2, 2 + 2]) / total
    numbers = root_numbers(root, SERVER, np.zeros(2))
    assert np.allclose(load_part("aggregations", "fltrust").combine(uploads, SERVER, options, root), expected)
    assert np.allclose(run_rule("fltrust", uploads, SERVER, numbers), expected)
    contrary = np.array([[0.0, 0.0], [NAN, 0.5]])
    assert np.array_equal(run_rule("fltrust", contrary, SERVER, numbers), SERVER)


def test_fltrust_without_root_data_is_refused_by_name() -> None:
    part, options = load_part("aggregations", "fltrust"), make_options("aggregations", "fltrust", {}, "")
    with pytest.raises(NotCoveredError, match=r"fltrust"):
        part.combine(FIVE, SERVER, options)
    with pytest.raises(NotCoveredError, match=r"fltrust"):
        part.options(Scenario(num_clients=5, dimension=2, aggregation="fltrust"), None)


def test_fltrust_is_refused_where_there_are_no_root_data() -> None:
    model, data = Model(kind="rff"), Data(function="sinc", input_dimension=1)
    scenario = Scenario(
        num_clients=5,
        dimension=4,
        iterations=5,
        model=model,
        data=data,
        aggregation="fltrust",
        aggregation_options={},
    )
    with pytest.raises(NotCoveredError, match=r"fltrust"):
        simulate(scenario, trials=2)


def test_options_of_another_rule_are_refused_by_name() -> None:
    sizes = {"num_clients": 5, "dimension": 2}
    with pytest.raises(InvalidValueError, match=r'aggregation_options.trim = 1 .*"median" does not read it'):
        Scenario(**sizes, aggregation="median", aggregation_options={"trim": 1})
    with pytest.raises(UnknownFieldError, match=r"aggregation_options.depth"):
        Scenario(**sizes, aggregation="krum", aggregation_options={"depth": 1})
    with pytest.raises(InvalidValueError, match=r"aggregation_options.radius = 0.*above 0"):
        Scenario(**sizes, aggregation="centred-clipping", aggregation_options={"radius": 0})
    with pytest.raises(InvalidValueError, match=r"aggregation_options.tolerated = 1.5"):
        Scenario(**sizes, aggregation="krum", aggregation_options={"tolerated": 1.5})
    with pytest.raises(InvalidValueError, match=r"aggregation_options = 3"):
        Scenario(**sizes, aggregation_options=3)


def test_another_rule_starts_from_its_own_options() -> None:
    scenario = Scenario(num_clients=5, dimension=2, aggregation="trimmed-mean")
    assert scenario.replace(aggregation="krum").aggregation_options == {"tolerated": 1}
    changed = with_values(
        scenario.replace(aggregation_options={"trim": 2}),
        {"aggregation": "multi-krum", "aggregation_options.selected": 3},
    )
    assert changed.aggregation_options == {"tolerated": 1, "selected": 3}


def test_the_block_form_refuses_what_it_does_not_know(small_scenario: Scenario) -> None:
    scenario = small_scenario.replace(aggregation="median")
    with pytest.raises(NotCoveredError, match=r"block form"):
        run_reference(scenario, draw_trial(scenario, 0, 0))
