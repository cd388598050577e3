"""Every attack and every rule in the federation, in one process: as the literal form says, or refused by name."""

from dataclasses import dataclass

import numpy as np
import pytest
from flwr.clientapp import ClientApp

from psofed import Data, InvalidValueError, NotCoveredError, PsofedError, Scenario
from psofed.aggregations import MDA, Mean
from psofed.attacks import ConstantBias, Gaussian, Mimic
from psofed.federation import Combination, PSOFed, Sharing, SuppliedMasks, online_regression, partial_sharing
from psofed.federation.client.attacks import PoisonedSource, rehearse
from psofed.federation.client.sources import Position, Samples
from psofed.federation.client.synthetic import SyntheticSource
from psofed.federation.protocol.aggregate import aggregate
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.participants import SuppliedParticipants
from psofed.federation.server.plausibility import _deviations
from psofed.federation.testing import InProcessGrid
from psofed.fleet import draw_fleet
from psofed.parts.affine import Affine
from psofed.parts.pre_aggregations import Bucketing
from psofed.parts.registry import find_part, part_names
from reference.draws import draw_trial
from reference.literal import run_literally

pytestmark = [pytest.mark.federation, pytest.mark.takes(21)]

SIZES = {"num_clients": 6, "dimension": 4, "num_participants": 5, "num_shared": 2, "iterations": 8}


@dataclass(frozen=True)
class ArraySource:
    inputs: np.ndarray
    targets: np.ndarray

    def read(self, start: Position, limit: int) -> Samples:
        end = min(start.samples + limit, len(self.targets))
        ends = tuple(Position(i + 1) for i in range(start.samples, end))
        return Samples(self.inputs[start.samples : end], self.targets[start.samples : end], ends)


def run_federation(scenario: Scenario) -> np.ndarray:
    """Run the federation on the simulator's draws, one sample a round; node k is named by its number."""
    draws, target = draw_trial(scenario, seed=3, trial=0), draw_fleet(scenario).target
    every_mask = np.concatenate([draws.download_masks, draws.upload_masks[-1:]])
    nodes = [10 + k for k in range(scenario.num_clients)]
    masks = SuppliedMasks({
        (n + 1, node): np.flatnonzero(mask[k]) for n, mask in enumerate(every_mask) for k, node in enumerate(nodes)
    })  # fmt: skip
    attack = scenario.attack
    poisons = attack is not None and attack.poisons_samples()

    def make_app(k: int) -> ClientApp:
        app = ClientApp()
        source = ArraySource(draws.inputs[:, k], draws.inputs[:, k] @ target + draws.noise[:, k])
        if poisons and k < attack.num_byzantine:
            source = PoisonedSource(source, attack, k)
        app.train(mods=[partial_sharing(catch_up=True, masks=masks)])(
            online_regression(source, scenario.stepsize, 1)
        )
        return app

    named = None
    if attack is not None and not poisons:
        named = attack.replace(num_byzantine=None, clients=tuple(map(str, nodes[: attack.num_byzantine])))
    models = []
    strategy = PSOFed(
        Sharing(scenario.num_shared, supplied=masks), rounds=RoundPlan(newcomers="zeros"),
        aggregation=Combination(scenario.aggregation, scenario.pre_aggregation),
        num_participants=SuppliedParticipants(
            {n + 1: [nodes[k] for k in np.flatnonzero(a)] for n, a in enumerate(draws.participants)}
        ),
        rehearsal=named, on_round=lambda state: models.append(state.model.copy()),
    )  # fmt: skip
    strategy.step.plausibility.factor = None  # what the rule does is to be seen, not what the guard does
    strategy.start(InProcessGrid({node: make_app(k) for k, node in enumerate(nodes)}), np.zeros(scenario.dimension),
                   num_rounds=scenario.iterations)  # fmt: skip
    return np.array(models)


ATTACKS, RULES = part_names("attack"), part_names("aggregation")
# Every attack with a third of the rules and every rule with a third of the attacks: what they do together is in tests
# of the simulation, which runs the same bodies.
A_THIRD = [(a, r) for i, a in enumerate(ATTACKS) for j, r in enumerate(RULES) if (i + j) % 3 == 0]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("kind", "rule"), A_THIRD)
def test_the_federation_does_what_the_literal_form_says(kind: str, rule: str) -> None:
    attack = find_part("attack", kind)(num_byzantine=2, probability=1.0)
    scenario = Scenario(**SIZES, attack=attack, aggregation=rule)
    if scenario.aggregation.has_root_data:
        with pytest.raises(NotCoveredError, match=f'"{rule}"'):
            run_federation(scenario)
        return
    models = run_federation(scenario)
    assert np.isfinite(models).all()
    statement = attack.affine()
    is_random = kind == "data-poisoning" or (
        isinstance(statement, Affine) and (statement.variance or statement.common_variance)
    )
    # What is drawn in an attack is drawn otherwise here; and a reply that is not finite is dropped whole, so that the
    # others decide alone, where in the simulation it counts for the server's own value.
    is_dropped = kind in ("drop-out", "non-finite")
    if not is_random and not is_dropped:
        literal = run_literally(scenario, seed=3, trial=0)
        np.testing.assert_allclose(models, literal.models[1:, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", part_names("pre_aggregation"))
def test_the_federation_mixes_uploads_as_the_literal_form_does(kind: str) -> None:
    attack = find_part("attack", "sign-flip")(num_byzantine=2, probability=1.0)
    scenario = Scenario(**SIZES, attack=attack, aggregation="median", pre_aggregation=kind)
    models = run_federation(scenario)
    assert np.isfinite(models).all()
    if kind == "bucketing":  # which is drawn otherwise here, but the same each time
        assert np.array_equal(models, run_federation(scenario))
        assert not np.allclose(models, run_federation(scenario.replace(pre_aggregation=None)))
    else:
        literal = run_literally(scenario, seed=3, trial=0)
        np.testing.assert_allclose(models, literal.models[1:, 0], rtol=1e-9, atol=1e-12)


def test_mixed_uploads_have_no_weights_and_a_rule_for_few_is_given_few() -> None:
    with pytest.raises(InvalidValueError, match=r"weighted must be .*pre_aggregation"):
        Combination(weighted=True, pre_aggregation="nnm")
    with pytest.raises(InvalidValueError, match=r"aggregation_options.tolerated must be .*593,775"):
        PSOFed(num_participants=30, aggregation=MDA(tolerated=6))
    PSOFed(num_participants=30, aggregation=Combination(MDA(tolerated=6), Bucketing(size=2)))


@pytest.mark.parametrize("kind", part_names("attack"))
def test_a_node_rehearses_every_attack_it_can_know_enough_for(kind: str) -> None:
    attack = find_part("attack", kind)(num_byzantine=1, probability=1.0)
    if attack.poisons_samples() or attack.knows not in ("upload", "server"):
        with pytest.raises(NotCoveredError, match=f'"{kind}"'):
            rehearse(attack)
        return
    scenario = Scenario(**SIZES)
    draws, target = draw_trial(scenario, seed=3, trial=0), draw_fleet(scenario).target

    def make_app(k: int) -> ClientApp:
        app, mods = ClientApp(), [partial_sharing(catch_up=True)]
        source = ArraySource(draws.inputs[:, k], draws.inputs[:, k] @ target + draws.noise[:, k])
        app.train(mods=[rehearse(attack), *mods] if k == 0 else mods)(
            online_regression(source, scenario.stepsize, 1)
        )
        return app

    models = {}
    for byzantine in (0, 1):
        strategy = PSOFed(num_shared=2, rounds=RoundPlan(newcomers="zeros"), aggregation="median", seed=5)
        grid = InProcessGrid({10 + k: make_app(k if byzantine else k + 1) for k in range(4)})
        strategy.start(grid, np.zeros(4), num_rounds=6)
        models[byzantine] = strategy.state.model
    assert np.isfinite(models[1]).all()


def test_a_rule_on_a_large_model_is_compiled_and_the_same() -> None:
    rng = np.random.default_rng(0)
    model = rng.normal(size=20_000)
    uploads = [(np.sort(rng.permutation(20_000)[:9_000]), rng.normal(size=9_000)) for _ in range(5)]
    for rule in part_names("aggregation"):
        part = find_part("aggregation", rule)()
        if part.has_root_data:
            continue
        large = aggregate(model, uploads, None, part)
        small = model.copy()
        inside = [(indices[indices < 300], values[indices < 300]) for indices, values in uploads]
        if part.over == "entries":
            small[:300] = aggregate(model[:300], inside, None, part)
            np.testing.assert_allclose(large[:300], small[:300], rtol=1e-9, atol=1e-12)
        assert np.isfinite(large).all()


def test_weights_are_refused_with_another_rule_than_the_mean() -> None:
    with pytest.raises(PsofedError, match="weighted must be"):
        Combination("median", weighted=True)


def test_a_rehearsal_names_its_nodes() -> None:
    strategy = PSOFed(rehearsal=ConstantBias(clients=["pump-2"], probability=1.0, bias=5.0))
    uploads = {name: (np.array([0, 1]), np.zeros(2)) for name in ("pump-1", "pump-2", "pump-3")}
    received = strategy.step.rehearsal.corrupt(1, np.zeros(4), uploads)
    assert {name: float(values.sum()) for name, (_, values) in received.items()} == {
        "pump-1": 0.0, "pump-2": 10.0, "pump-3": 0.0,
    }  # fmt: skip


def test_a_repeated_round_repeats_its_attack() -> None:
    uploads = {name: (np.array([0, 1]), np.zeros(2)) for name in ("a", "b")}
    for attack in (Gaussian(num_byzantine=1, probability=1.0), Mimic(num_byzantine=1, probability=0.5)):
        first, again = (
            PSOFed(rehearsal=attack, seed=1).step.rehearsal.corrupt(4, np.zeros(2), uploads) for _ in "ab"
        )
        for name in uploads:
            assert np.array_equal(first[name][1], again[name][1])


def test_synthetic_clients_have_targets_of_their_own_where_the_scenario_says_so() -> None:
    scenario = Scenario(**SIZES, data=Data(target_spread=0.5, noise_variance=0.0))
    samples = SyntheticSource(scenario, partition=2, seed=0).read(Position(), 5)
    fleet = draw_fleet(scenario)
    own = fleet.target + fleet.target_offsets[2]
    np.testing.assert_allclose(samples.targets, samples.inputs @ own)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--byzantine", "--attack", "sign-flop"], "Did you mean `sign-flip`"),
        (["--byzantine", "--attack", "min-max"], "sees what other nodes upload"),
        (["--byzantine", "--attack", "gaussian", "--attack-strength", "-1"], "attack.variance must be"),
        (["--attack", "gaussian"], "add --byzantine"),
    ],
)
def test_a_node_that_cannot_rehearse_its_attack_does_not_start(options, message, psofed_command):
    done = psofed_command("federation", "client", *options)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_mask_for_all_gives_the_bits_of_a_mask_each(dtype):
    rng = np.random.default_rng(0)
    for size in (3, 700, 3000):  # the guard compares short uploads together, long ones one by one
        model = rng.standard_normal(size).astype(dtype)
        model[0] = -0.0
        shared = np.sort(rng.choice(size, size // 2, replace=False))
        values = rng.standard_normal((5, shared.size)).astype(dtype)
        together = [(shared, row) for row in values]
        apart = [(shared.copy(), row) for row in values]
        joined = [aggregate(model, uploads, rule=Mean()) for uploads in (together, apart)]
        assert joined[0].dtype == dtype
        assert joined[0].tobytes() == joined[1].tobytes()
        one_by_one = [_deviations(model, [upload])[0] for upload in together]
        change = values.astype(float) - model[shared].astype(float)
        assert _deviations(model, together) == one_by_one
        assert one_by_one == [float(np.sqrt(np.mean(np.square(row)))) for row in change]
