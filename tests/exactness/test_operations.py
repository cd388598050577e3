"""Operations counted in a plain run are those of the formulas in docs/tables/costs_formulas.csv."""

import pytest

from psofed import Scenario, Selection
from psofed.common.errors import NotCoveredError
from psofed.parts.algorithms import CSFed, DeMoA, OnlineFed, QSFed, RoSDHB, SignSGD
from psofed.reference.operations import count_operations

pytestmark = pytest.mark.reference


def fleet(dimension=5, participants=5, algorithm="pso-fed", **changes):
    return Scenario(
        num_clients=20, dimension=dimension, num_participants=participants, algorithm=algorithm, **changes
    )


def sums_and_products(operations):
    """Additions, and multiplications with divisions."""
    return operations.additions, operations.multiplications + operations.divisions


SIZES = [(2, 1), (5, 5), (8, 3)]  # D and |S_n|


@pytest.mark.parametrize(("d", "p"), SIZES)
@pytest.mark.parametrize("m", [1, 2])
def test_pso_fed_takes_one_lms_step_and_an_average_of_m_entries(d, p, m):
    cost = count_operations(fleet(d, p, num_shared=m))
    assert sums_and_products(cost.participant) == (2 * d, 2 * d + 1)
    assert sums_and_products(cost.server) == (m * (p - 1), m)
    assert cost.bystander == cost.participant
    assert cost.all_clients_per_iteration == 20 * (4 * d + 1)


@pytest.mark.parametrize(("d", "p"), SIZES)
def test_online_fed_takes_one_lms_step_and_an_average_of_all_entries(d, p):
    cost = count_operations(fleet(d, p, OnlineFed()))
    assert sums_and_products(cost.participant) == (2 * d, 2 * d + 1)
    assert sums_and_products(cost.server) == (d * (p - 1), d)
    # An exchange of D numbers every D/M iterations, with M = 1 here; the others do nothing.
    assert cost.all_clients_per_iteration == pytest.approx(p / d * (4 * d + 1))


@pytest.mark.parametrize(("d", "p"), SIZES)
@pytest.mark.parametrize("signs", ["stochastic", "deterministic"])
def test_signsgd_compares_every_entry(d, p, signs):
    cost = count_operations(fleet(d, p, SignSGD(signs=signs)))
    stochastic = signs == "stochastic"
    assert sums_and_products(cost.participant) == (d + d * stochastic, 2 * d + 1 + 2 * d * stochastic)
    assert cost.participant.comparisons == d
    assert cost.own_draws == d * stochastic
    assert sums_and_products(cost.server) == (d * p, 3 * d)
    assert cost.server.comparisons == 2 * d


@pytest.mark.parametrize(("d", "p"), SIZES)
@pytest.mark.parametrize(("q", "steps"), [(4, 3), (16, 20)])
def test_cs_fed_multiplies_by_its_matrix_and_decodes_in_steps(d, p, q, steps):
    cost = count_operations(fleet(d, p, CSFed(measurements=q, decoding_steps=steps)))
    assert sums_and_products(cost.participant) == (2 * d + q * d, 3 * d + 1 + q * d)
    assert (cost.participant.comparisons, cost.participant.roots) == (q, 1)
    each_sums = steps * (2 * q * d + q + d) + d  # residual, its sign, the step; then the length
    each_products = steps * (2 * q * d + q) + 2 * d + 1
    assert sums_and_products(cost.server) == (p * each_sums + d * (p - 1) + d, p * each_products + d)
    assert cost.server.comparisons == p * (2 * q * steps + 1)
    assert cost.server.roots == p
    assert cost.shared_draws == q * d


@pytest.mark.parametrize(("d", "p"), SIZES)
@pytest.mark.parametrize(("r", "c"), [(1, 1), (5, 1), (3, 4)])
def test_qs_fed_adds_every_entry_to_a_cell_of_every_row(d, p, r, c):
    cost = count_operations(fleet(d, p, QSFed(rows=r, columns=c, top=d)))
    assert sums_and_products(cost.participant) == (d + r * d, 2 * d + 1 + r * d)
    assert sums_and_products(cost.server) == (r * c * (p - 1) + r * c + d, r * c + r * c + r * d)
    # The median of r numbers takes at least r − 1 comparisons.
    assert cost.server.comparisons >= d * (r - 1)
    assert cost.shared_draws == 2 * r * d


def test_decoding_once_saves_all_but_one_clients_share():
    each, once = (count_operations(fleet(algorithm=CSFed(joint=joint))).server for joint in (False, True))
    assert 4.5 < each.total / once.total < 5


def test_masks_of_their_own_make_the_server_fill_in_its_own_numbers():
    scenario = fleet(dimension=4, participants=4, num_shared=2, selection=Selection(coordinated=False))
    server = count_operations(scenario).server
    assert server.multiplications > 0  # own number times those who did not send it
    assert 2 <= server.divisions <= 4  # an average for each entry that somebody sent


def test_a_rule_other_than_the_mean_is_refused():
    with pytest.raises(NotCoveredError, match="mean"):
        count_operations(fleet(aggregation="median"))


@pytest.mark.parametrize(("d", "p"), SIZES)
def test_rosdhb_keeps_a_momentum_of_all_clients_at_the_server(d, p):
    cost = count_operations(fleet(d, p, RoSDHB(), num_shared=1))
    k = 20
    assert sums_and_products(cost.participant) == (d, 2 * d + 1)
    # M scaled entries and D entries of momentum for each client; the mean of K; the step.
    assert sums_and_products(cost.server) == (k * d + (k - 1) * d + d, k + 2 * k * d + d)
    assert cost.bystander.total == 0
    assert cost.all_clients_per_iteration == pytest.approx(p / d * (3 * d + 1))


@pytest.mark.parametrize(("d", "p"), SIZES)
@pytest.mark.parametrize("unseen", ["shrunk", "kept"])
def test_demoa_keeps_a_momentum_at_each_client_and_one_of_each_at_the_server(d, p, unseen):
    cost = count_operations(fleet(d, p, DeMoA(unseen=unseen)))
    k, shrunk = 20, unseen == "shrunk"
    assert sums_and_products(cost.participant) == (2 * d, 4 * d + 1)
    assert sums_and_products(cost.server) == ((k - 1) * d + d, d + (k - p) * d * shrunk)
    # D of them every D iterations.
    assert cost.bystander.multiplications == pytest.approx(1.0 if shrunk else 0.0)
