"""Every kind of scenario does what is written literally; corners that no other test meets."""

import sys
from pathlib import Path

import numpy as np
import pytest

from psofed import Algorithm, Scenario, draw_fleet, option
from psofed.engine.run import Run
from psofed.engine.samples import TableSamples
from psofed.parts.attacks import Gaussian, SignFlip
from psofed.parts.availabilities import Bernoulli
from psofed.parts.contexts import Message, Received
from psofed.parts.defences import Cusum
from psofed.parts.delays import Geometric
from psofed.parts.traffic import BITS_PER_NUMBER, Exchange, Momentum, Traffic, spend_budget
from psofed.parts.watching import WatchPlan
from psofed.simulation.baselines import lms_errors
from reference.literal import run_trial

sys.path.insert(0, str(Path(__file__).parent))
from every_kind import KINDS, PLAN, scenario_of, start
from few_trials import advance

pytestmark = pytest.mark.engine

METRICS = ("network_mse", "server_msd", "test_mse")
# There is no literal form of these.
WITHOUT_LITERAL_FORM = ("a table", "root data")
TRIALS = range(10, 12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITHOUT_LITERAL_FORM])
def test_every_kind_of_scenario_does_what_is_written_literally(kind: str) -> None:
    found = np.empty((12, 3, 2))
    start(kind, TRIALS).advance(0, found)
    literal = run_trial(scenario_of(kind), 3, 11, PLAN)
    expected = np.array([getattr(literal, metric) for metric in METRICS])
    assert np.allclose(found[:, :, 1].T, expected, rtol=1e-9)


@pytest.fixture
def everything() -> type[Algorithm]:
    """An algorithm that asks for more than any of psofed's own; defined here, so that no other test meets it."""

    class Everything(Algorithm):
        """Draws, sends, decodes and remembers more than any of psofed's own; what it does makes no sense."""

        decode_joined: bool = option(False, text="decode once")
        fresh: bool = option(True, text="draw afresh")
        momenta: bool = option(False, text="remember")

        def traffic(self, scenario: Scenario) -> Traffic:
            return spend_budget(scenario, bits_up=BITS_PER_NUMBER * 6, bits_down=BITS_PER_NUMBER * 6)

        def exchange(self, scenario: Scenario) -> Exchange:
            momentum = Momentum(keep=0.7, take=0.4, absent=0.9) if self.momenta else None
            return Exchange(
                numbers=3, decode_joined=self.decode_joined, normals=3, uniforms=2, client_uniforms=2, fresh=self.fresh,
                memory=2, client_momentum=momentum, server_momentum=momentum,
            )  # fmt: skip

        def encode(self, message: Message, out: np.ndarray) -> None:
            for j in range(3):
                out[j] = message.update[j] + message.update[j + 1] * message.client_uniforms[j % 2]
                out[j] += 0.01 * message.normals[j] * message.uniforms[j % 2]

        def decode(self, received: Received, out: np.ndarray) -> None:
            for i in range(6):
                out[i] = received.numbers[i % 3] * (1.0 + received.uniforms[i % 2])
                out[i] += 0.001 * received.normals[i % 3] * received.participants

        def apply(self, received: Received, memory: np.ndarray, change: np.ndarray) -> None:
            memory[0] = 0.5 * memory[0] + received.numbers[1]
            memory[1] += received.stepsize * received.uniforms[1] + 0.01 * received.normals[2]
            for i in range(6):
                change[i] = received.numbers[i] + 0.1 * memory[i % 2] + 0.001 * received.participants

    return Everything


@pytest.mark.parametrize("decode_joined", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("momenta", [True, False])
def test_an_algorithm_is_given_all_that_it_asks_for(
    everything: type[Algorithm], decode_joined: bool, fresh: bool, momenta: bool
) -> None:
    scenario = Scenario(
        num_clients=7, dimension=6, num_participants=5, num_shared=6, iterations=4, aggregation="median",
        algorithm=everything(decode_joined=decode_joined, fresh=fresh, momenta=momenta), pre_aggregation="nnm",
        attack=Gaussian(num_byzantine=2, probability=0.5), defence=Cusum(threshold=3.0, return_after=1),
    )  # fmt: skip
    found, plan, fleet = np.empty((4, 3, len(TRIALS))), WatchPlan(3.0, np.zeros((0, 0))), draw_fleet(scenario)
    run = Run(scenario, fleet, 3, TRIALS, plan=plan)
    run.advance(0, found[:2])
    run.advance(2, found[2:])
    literal = run_trial(scenario, 3, 11, plan)
    for q, metric in enumerate(METRICS):
        assert np.allclose(found[:, q, -1], getattr(literal, metric), rtol=1e-9)
    assert np.array_equal(run.watching.exclusions[-1], literal.watch.exclusions)


SMALL = Scenario(
    num_clients=7, dimension=5, num_participants=4, num_shared=2, iterations=12,
    attack=Gaussian(clients=(0, 1), probability=0.5),
)  # fmt: skip


@pytest.mark.parametrize("grouping", ["together", "by-delay"])
def test_models_that_online_fed_uploads_may_arrive_late(grouping: str) -> None:
    """They also arrive in iterations without an exchange."""
    scenario = SMALL.replace(
        algorithm="online-fed",
        availability=Bernoulli(probability=0.6),
        delay=Geometric(ratio=0.5, longest=3, weight=0.6, grouping=grouping),
    )
    found = advance(scenario, 5, 12)[0]
    literal = run_trial(scenario, 5, 1)
    for q, metric in enumerate(METRICS):
        assert np.allclose(found[:, q, -1], getattr(literal, metric), rtol=1e-9)


def test_groups_attack_side_by_side() -> None:
    """Two groups that do the same are one group, up to the random numbers they draw."""
    one = SignFlip(clients=(0, 2), probability=1.0)
    two = (SignFlip(clients=(2,), probability=1.0), SignFlip(clients=(0,), probability=1.0))
    assert np.array_equal(*(advance(SMALL.replace(attack=a), 3, 6)[0] for a in (one, two)))


def test_clients_with_rows_of_their_own_that_always_sleep_learn_alone() -> None:
    asleep = SMALL.replace(attack=None, availability=Bernoulli(probability=0.0))
    rng = np.random.default_rng(0)
    rows = TableSamples([rng.normal(size=(6, 5)) for _ in range(7)], [rng.normal(size=6) for _ in range(7)], 1)
    metrics = advance(asleep, 3, 6, samples=rows)[0]
    alone, _ = lms_errors(rows, draw_fleet(asleep).target, asleep.common_stepsize, 7, 6)
    assert np.allclose(metrics[:, 0], alone.mean(axis=1)[:, None], rtol=1e-12)
    assert (metrics[:, 1] == metrics[0, 1]).all(), "the server hears from nobody"
