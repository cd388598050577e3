"""How verdicts follow from numbers."""

import dataclasses

import numpy as np
import pytest

from psofed.paper.claims import check_claims
from psofed.paper.verdict import (
    CONDITIONAL,
    FAILS,
    HOLDS,
    UNDECIDED,
    Check,
    Claim,
    DecibelDifference,
    explain,
    paired_difference,
)

pytestmark = pytest.mark.paper


def claim(outcomes):
    checks = tuple(Check({"M": place}, passed, f"case {place}") for place, passed in enumerate(outcomes))
    return Claim("statement", "source", ("fig1",), "criterion", checks)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([True, True], HOLDS),
        ([True, None], HOLDS),
        ([True, False], CONDITIONAL),
        ([False, False, None], FAILS),
        ([None], UNDECIDED),
    ],
)
def test_a_verdict_follows_from_the_cases(outcomes, verdict):
    assert claim(outcomes).verdict == verdict


def test_a_condition_is_found_in_the_cases():
    checks = [
        Check({"uplink": uplink, "μ": mu}, uplink == "redrawn" and mu <= 0.05, "")
        for uplink in ("same", "redrawn")
        for mu in (0.01, 0.05, 0.1)
    ]
    assert explain(checks) == "uplink is redrawn and μ ≤ 0.05"


def test_where_no_simple_condition_tells_the_cases_apart_the_widest_safe_one_is_given():
    passing = {(1, 1), (1, 2), (1, 3), (1, 4), (2, 3), (3, 1), (4, 2)}
    checks = [Check({"a": a, "b": b}, (a, b) in passing, "") for a in range(1, 5) for b in range(1, 5)]
    text = explain(checks)
    assert "other cases" in text
    assert "a = 1" in text


def test_a_paired_difference_loses_what_both_sides_share():
    rng = np.random.default_rng(1)
    shared = rng.gamma(5.0, size=400)
    first, second = 1.1 * shared, shared * (1 + 0.01 * rng.standard_normal(400))
    difference = paired_difference(first, second)
    assert difference.decibels == pytest.approx(10 * np.log10(1.1), abs=5 * difference.standard_error)
    unpaired = np.hypot(first.std() / first.mean(), second.std() / second.mean()) * 4.34 / 20
    assert difference.standard_error < 0.1 * unpaired


def test_paired_standard_errors_are_honest():
    rng = np.random.default_rng(2)
    scores = []
    for _ in range(300):
        shared = rng.gamma(8.0, size=50)
        first, second = shared * rng.gamma(50.0, size=50), shared * rng.gamma(50.0, size=50)
        difference = paired_difference(first, second)
        scores.append(difference.decibels / difference.standard_error)
    assert np.std(scores) == pytest.approx(1.0, abs=0.15)


def test_a_trial_that_diverged_makes_the_difference_infinite():
    assert paired_difference(np.array([1.0, np.inf]), np.ones(2)).is_positive
    assert paired_difference(np.ones(2), np.array([1.0, np.inf])).is_negative


def test_a_difference_says_its_uncertainty():
    assert str(DecibelDifference(-0.1234, 0.01)) == "−0.123 ± 0.010 dB"
    assert str(DecibelDifference(0.5)) == "+0.500 dB"


def find(claims, words):
    return next(claim for claim in claims if words in claim.statement)


def test_the_exact_theory_holds_and_the_papers_fails_for_its_own_equations(saved):
    _, claims, _ = saved
    for words in ("exact theory (ours) predicts the MSE of", "exact theory (ours) predicts the MSE with"):
        assert find(claims, words).verdict == HOLDS
    ours = find(claims, "paper's theory predicts the MSE of the paper's equations")
    assert ours.verdict == CONDITIONAL
    worst = min(check.weight for check in ours.checks)
    assert worst < -3.0  # dB, at M = D


def test_pso_fed_is_best_only_against_some_readings_of_signsgd(saved):
    _, claims, _ = saved
    best = find(claims, "best for every number")
    assert best.verdict == CONDITIONAL
    losing = {
        check.case["rival"] for check in best.checks if check.passed is False and check.case["|S_B|"] == 20
    }
    assert losing == {"SignSGD, plain signs, majority", "SignSGD, plain signs, mean"}


def test_equal_attacks_give_equal_mse_and_terms_move_as_claimed(saved):
    _, claims, _ = saved
    for words in ("α₁β₁ = α₂β₂", "E_ω, the attack's share, rises", "E_φ, the data's share, falls"):
        assert find(claims, words).verdict == HOLDS


def test_whether_cs_fed_computes_more_depends_on_whose_work_is_counted(saved):
    _, claims, _ = saved
    compressed = find(claims, "CS-Fed takes more computation")
    assert compressed.verdict == CONDITIONAL
    failing = [check.case for check in compressed.checks if not check.passed]
    # Its clients work in exchanges alone; PSO-Fed's learn in every iteration.
    assert failing == [{"side": "clients", "unit": "iteration"}]
    assert "10.3 times fewer" in compressed.evidence[-1]
    burden = find(claims, "no more computation of the clients")
    assert [check.passed for check in burden.checks] == [True, False]


def test_verdicts_turn_when_the_numbers_do(reproduction):
    figure = reproduction.figures["fig3"]
    turned = tuple(
        dataclasses.replace(series, trials=series.trials[::-1], y=series.y[::-1])
        if series.trials is not None
        else series
        for series in figure.series
    )
    figures = {"fig3": dataclasses.replace(figure, series=turned)}
    assert find(check_claims(figures), "stronger attack").verdict == FAILS


def test_a_claim_is_left_out_when_its_figure_is(reproduction):
    claims = check_claims({"fig9": reproduction.figures["fig9"]})
    assert {figure for claim in claims for figure in claim.figures} == {"fig9"}
