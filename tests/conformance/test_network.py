"""Availability, channels, delays and groups of attackers: their statistics, products with other parts, and refusals."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

import psofed
from psofed import Links, NotCoveredError, Scenario, Selection, Uniform, simulate
from psofed.engine.draws import AvailableClients
from psofed.engine.state import Layout
from psofed.engine.streams import make_stream
from psofed.parts.attacks import DropOut, Gaussian, NonFinite, SignFlip
from psofed.parts.availabilities import Bernoulli, Markov, Schedule
from psofed.parts.channels import Lossy, Noisy, Private, Quantised
from psofed.parts.contexts import Transmission
from psofed.parts.delays import Fixed, Geometric
from psofed.parts.registry import find_part, part_names
from psofed.results.privacy import gaussian_epsilon
from psofed.results.traffic import measure_communication
from psofed.scenario.changes import with_values

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.scenario]

BASE = Scenario(
    num_clients=7, dimension=5, num_participants=4, num_shared=2, iterations=25,
    attack=Gaussian(num_byzantine=2, probability=0.5),
)  # fmt: skip
AVAILABILITIES = (
    Bernoulli(probability=0.3),
    Bernoulli(probability=Uniform(0.2, 0.9), server_knows=False),
    Markov(probability=0.4, mean_time=3),
    Schedule(period=5, share=0.4),
)
LINKS = (
    None,
    Links(up=Quantised(bits=5, reach=2.0), down=Lossy(probability=0.3)),
    Links(up=(Private(clip=0.3), Lossy(probability=0.2)), down=Noisy(variance=0.01)),
)
DELAYS = (None, Fixed(iterations=2, weight=0.5), Geometric(ratio=0.5, longest=3, weight=0.5))
RULES = ("mean", "median", "krum", "geometric-median", "centred-clipping")
PRODUCT = list(itertools.product(AVAILABILITIES, LINKS, DELAYS))


def attendance(availability: psofed.Availability, clients: int, iterations: int) -> np.ndarray:
    stream = make_stream(3, "availability", range(16))
    layout = Layout(clients, 0, 0)
    return AvailableClients(availability, availability.shares(clients, 0), stream, layout).draw(0, iterations)


@pytest.mark.parametrize("place", range(len(PRODUCT)))
def test_the_engine_equals_the_literal_form(as_literally: Callable, place: int) -> None:
    availability, links, delay = PRODUCT[place]
    scenario = BASE.replace(
        availability=availability,
        channel=links,
        delay=delay,
        aggregation=RULES[place % len(RULES)],
        selection=Selection(coordinated=place % 2 == 0),
        uplink="redrawn" if place % 3 == 0 else "same",
    )
    as_literally(scenario, 3, 5, rtol=1e-10, atol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in part_names("algorithm") if kind != "pso-fed"])
@pytest.mark.parametrize("knows", [True, False])
def test_clients_that_hold_no_model_sleep_and_have_links_too(as_literally: Callable, kind: str, knows: bool) -> None:
    """Two groups of attackers as well; messages get lost both ways, and sometimes nobody is there.

    Models may arrive late, also in iterations without an exchange.
    """
    late = Geometric(ratio=0.5, longest=3, weight=0.6, grouping="together" if knows else "by-delay")
    scenario = BASE.replace(
        algorithm=kind,
        iterations=20,
        availability=Bernoulli(probability=0.35, server_knows=knows),
        channel=Links(
            up=(Noisy(variance=0.001), Lossy(probability=0.2)),
            down=(Quantised(bits=6, reach=2.0), Lossy(probability=0.2)),
        ),
        attack=[Gaussian(clients=(0, 1), probability=0.5), find_part("attack", "label-poisoning")(clients=(2,))],
        delay=late if kind == "online-fed" else None,
    )
    as_literally(scenario, 3, 5, rtol=1e-8, atol=1e-12)
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    with pytest.raises(NotCoveredError, match=r"the theory (covers|does not cover) algorithm"):
        psofed.predict(scenario)


@pytest.mark.parametrize("delay", [None, *DELAYS[1:], Geometric(ratio=0.5, longest=3, grouping="by-delay")])
@pytest.mark.parametrize("links", LINKS)
def test_a_message_that_is_not_finite_counts_as_not_sent(
    as_literally: Callable, delay: psofed.Delay | None, links: Links | None
) -> None:
    """NaN and infinity alike: no link makes a number of them, and neither counts among the uploads that arrive."""
    scenario = BASE.replace(delay=delay, channel=links, attack=NonFinite(num_byzantine=3, probability=0.5))
    as_literally(scenario, 3, 5, rtol=1e-10, atol=0.0)
    silent = scenario.replace(attack=DropOut(num_byzantine=3, probability=0.5))
    curves = [simulate(attacked, trials=5).curve["server_msd"] for attacked in (scenario, silent)]
    assert np.array_equal(*curves)


def test_data_and_masks_do_not_depend_on_the_network() -> None:
    """With a stepsize near 0 nobody learns, so the clients' errors are those of the data alone."""
    still = BASE.replace(stepsize=1e-300, attack=None)
    asleep = still.replace(availability=AVAILABILITIES[2], channel=LINKS[1], delay=DELAYS[2])
    assert np.array_equal(
        simulate(still, trials=2).curve["test_mse"][:1], simulate(asleep, trials=2).curve["test_mse"][:1]
    )


@pytest.mark.parametrize("share", [0.25, 0.7])
def test_a_markov_client_is_there_for_its_share_in_spells_of_the_stated_length(share: float) -> None:
    there = attendance(Markov(probability=share, mean_time=8), clients=40, iterations=2000)
    assert abs(there[0].mean() - share) < 4 * math.sqrt(share * (1 - share) / there[0].size)
    # Spells make neighbouring iterations alike: about (1 + r) / (1 − r) of them count as one, r their correlation.
    r = 1 - 1 / 8 / (1 - share)
    effective = there.size * (1 - r) / (1 + r)
    assert abs(there.mean() - share) < 4 * math.sqrt(share * (1 - share) / effective)
    begins = np.sum(~there[:-1] & there[1:])
    assert abs(there.sum() / begins - 8) < 0.2


def test_a_schedule_repeats_and_spreads_its_phases() -> None:
    there = attendance(Schedule(period=8, share=0.25), clients=4, iterations=16)[:, :, 0]
    assert np.array_equal(there[:8], there[8:])
    assert (there[:8].sum(axis=0) == 2).all()
    assert (there.sum(axis=1) == 1).all()
    # 0.07 · 100 is 7.000000000000001 in floating point.
    assert attendance(Schedule(period=100, share=0.07), clients=1, iterations=100)[:, 0, 0].sum() == 7


@pytest.mark.parametrize(("period", "share"), [(1, 0.133), (3, 0.606), (12, 0.917), (100, 0.07), (40_000, 0.3)])
@pytest.mark.parametrize("knows", [True, False])
def test_traffic_of_a_schedule_is_the_mean_over_a_period(period: int, share: float, knows: bool) -> None:
    schedule = Schedule(period=period, share=share, server_knows=knows)
    there = attendance(schedule, clients=7, iterations=period)[:, :, 0].sum(axis=1)
    expected = np.minimum(there, 4).mean() if knows else 4 * there.mean() / 7
    assert math.isclose(schedule.expected_participants(7, 4, 0), expected)


@pytest.mark.parametrize("rounding", ["dithered", "stochastic"])
def test_the_quantiser_is_unbiased_and_its_dithered_error_has_variance_of_a_step_squared_over_12(rounding: str) -> None:
    channel = Quantised(bits=4, reach=2.0, rounding=rounding)
    rng, step = np.random.default_rng(0), 4.0 / 16
    values, out, none = rng.uniform(-1.6, 1.6, 20_000), np.empty(20_000), np.zeros(0)
    channel.transmit(Transmission(values, none, none, 0, 0, none, rng.random(values.size), 0.0), out)
    error = out - values
    assert abs(error.mean()) < 4 * step / math.sqrt(values.size)
    if rounding == "dithered":
        assert abs(error.var() / (step**2 / 12) - 1) < 4 * math.sqrt(0.8 / values.size)
        assert abs(np.corrcoef(error, values)[0, 1]) < 4 / math.sqrt(values.size)
        assert channel.added_variance() == step**2 / 12
    else:
        assert np.allclose((out / step - 0.5) % 1.0, 0.0)
        assert set(np.unique(np.round(out / step - 0.5))) <= set(range(-8, 8))


def test_traffic_counts_bits_and_who_is_there() -> None:
    scenario = BASE.replace(
        availability=Bernoulli(probability=0.5, server_knows=False), channel=Links(up=Quantised(bits=4, reach=1.0))
    )
    sent = measure_communication(scenario)
    assert sent.bits_up == 4 * 2 * 4 * 0.5
    assert sent.bits_down == 4 * 2 * 64 * 0.5
    knows = scenario.replace(availability=Bernoulli(probability=0.5))
    there = [min(sum(bits), 4) for bits in itertools.product((0, 1), repeat=7)]
    assert math.isclose(measure_communication(knows).bits_up, 4 * 2 * np.mean(there))


def test_privacy_is_stated_and_composes_exactly() -> None:
    scenario = BASE.replace(channel=Links(up=Private(clip=1.0, multiplier=2.0)), availability=AVAILABILITIES[1])
    spent = simulate(scenario, trials=2).to_json()["privacy"]
    assert 0 < spent["uploads"] <= BASE.iterations
    assert spent["epsilon"] == gaussian_epsilon(2.0, spent["uploads"], 1e-5)
    assert math.isclose(gaussian_epsilon(2.0, 4, 1e-5), gaussian_epsilon(1.0, 1, 1e-5))


def test_the_accountant_agrees_with_dp_accounting() -> None:
    accounting = pytest.importorskip("dp_accounting")
    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(2.0), 50)
    accountant = accounting.pld.PLDAccountant().compose(event)
    assert abs(accountant.get_epsilon(1e-5) / gaussian_epsilon(2.0, 50, 1e-5) - 1) < 1e-3


def test_fields_of_groups_and_series_are_set_in_each_or_in_one() -> None:
    scenario = BASE.replace(
        attack=[Gaussian(clients=[0]), SignFlip(clients=[1])],
        channel=Links(up=(Quantised(bits=8, reach=1.0), Lossy(probability=0.1))),
    )
    changed = with_values(scenario, {"attack.strength": 3.0, "channel.up.bits": 4, "attack.0.probability": 1.0})
    assert [attack.strength for attack in changed.attacks] == [3.0, 3.0]
    assert [attack.probability for attack in changed.attacks] == [1.0, 0.2]
    assert changed.channel is not None
    assert changed.channel.bits_up == 4
    assert Scenario.from_toml(changed.to_toml()) == changed


@pytest.mark.slow
def test_clients_with_data_of_their_own_may_sleep() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    rows = psofed.from_arrays(x, x @ [1.0, -1.0] + rng.normal(size=200), np.arange(200) % 4)
    awake = Scenario.from_data(rows, num_participants=3)
    asleep = awake.replace(availability=Bernoulli(probability=0.0), channel=Links(up=Noisy(variance=0.1)))
    assert simulate(asleep, trials=2).server_msd.mean > 2 * simulate(awake, trials=2).server_msd.mean
