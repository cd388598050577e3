"""Every attack and every rule in the federation, in one process: as the literal form says, or refused by name."""

import numpy as np
import pytest
from nodes import ArraySource, make_node, supplied_draws

from psofed import Data, InvalidValueError, NotCoveredError, Scenario
from psofed.aggregations import MDA, Mean
from psofed.attacks import ConstantBias
from psofed.federation.client.gateway import Rehearsal
from psofed.federation.client.node import Node
from psofed.federation.client.online import OnlineRegression
from psofed.federation.client.sources import Position, SyntheticSource
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.loop import Server
from psofed.federation.server.step import Combination, aggregate
from psofed.federation.transport.in_process import InProcessHub
from psofed.fleet import draw_fleet
from psofed.parts.affine import Affine
from psofed.parts.pre_aggregations import Bucketing
from psofed.parts.registry import find_part, part_names
from reference.draws import draw_trial
from reference.literal import run_literally

pytestmark = [pytest.mark.federation, pytest.mark.takes(21)]

SIZES = {"num_clients": 6, "dimension": 4, "num_participants": 5, "num_shared": 2, "iterations": 8}


def run_federation(scenario: Scenario) -> np.ndarray:
    """Run the federation on the simulator's draws, one sample a round; node k is named by its number."""
    draws, target = draw_trial(scenario, seed=3, trial=0), draw_fleet(scenario).target
    every_mask = np.concatenate([draws.download_masks, draws.upload_masks[-1:]])
    nodes = [10 + k for k in range(scenario.num_clients)]
    masks = {
        (n + 1, node): np.flatnonzero(mask[k]) for n, mask in enumerate(every_mask) for k, node in enumerate(nodes)
    }  # fmt: skip
    attack = scenario.attack
    models = []

    def node(name: str, k: int) -> Node:
        source = ArraySource(draws.inputs[:, k], draws.inputs[:, k] @ target + draws.noise[:, k])
        byzantine = attack is not None and k < attack.num_byzantine
        corruption = None
        if byzantine:
            corruption = Rehearsal(attack)
        learner = OnlineRegression(source, scenario.stepsize, 1)
        return make_node(name, learner.learn, catch_up=True, corruption=corruption)

    server = Server(
        Sharing(scenario.num_shared, coordinated=False), rounds=RoundPlan(newcomers="zeros"),
        aggregation=Combination(scenario.aggregation, scenario.pre_aggregation),
        on_round=lambda state: models.append(state.model.copy()),
    )  # fmt: skip
    hub = InProcessHub({str(number): node(str(number), k) for k, number in enumerate(nodes)})
    drawn = {n + 1: [nodes[k] for k in np.flatnonzero(a)] for n, a in enumerate(draws.participants)}
    with supplied_draws(masks, drawn):
        server.run(hub, {"0": np.zeros(scenario.dimension)}, scenario.iterations)
    return np.array(models)


KNOWN = {kind: find_part("attack", kind)(num_byzantine=2, probability=1.0) for kind in part_names("attack")}


@pytest.mark.parametrize("kind", KNOWN)
def test_a_node_rehearses_every_attack_it_can_know_enough_for(kind: str) -> None:
    attack = KNOWN[kind]
    scenario = Scenario(**SIZES, attack=attack, aggregation="median")
    needs = attack.memory_size(1) or attack.defines("remember") or attack.defines("poison")
    if needs or attack.knows not in ("upload", "server"):
        with pytest.raises(NotCoveredError, match=f'"{kind}"'):
            run_federation(scenario)
        with pytest.raises(NotCoveredError, match=f'"{kind}"'):
            RunSettings(scenario=scenario)
        return
    models = run_federation(scenario)
    assert np.isfinite(models).all()
    statement = attack.affine()
    is_random = isinstance(statement, Affine) and (statement.variance or statement.common_variance)
    # What is drawn in an attack is drawn otherwise here; a reply that is not finite is dropped whole, so that the
    # others decide alone, where in the simulation it counts for the server's own value; and an attack that sees the
    # server's model knows here only what the node has downloaded.
    if not is_random and kind not in ("drop-out", "non-finite") and attack.knows == "upload":
        literal = run_literally(scenario, seed=3, trial=0)
        np.testing.assert_allclose(models, literal.models[1:, 0], rtol=1e-9, atol=1e-12)


RULES = {kind: find_part("aggregation", kind)() for kind in part_names("aggregation")}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_does_what_the_literal_form_says(rule: str) -> None:
    scenario = Scenario(**SIZES, attack=ConstantBias(num_byzantine=2, probability=1.0), aggregation=rule)
    if scenario.aggregation.has_root_data:
        with pytest.raises(NotCoveredError, match=f'"{rule}"'):
            run_federation(scenario)
        return
    literal = run_literally(scenario, seed=3, trial=0)
    np.testing.assert_allclose(run_federation(scenario), literal.models[1:, 0], rtol=1e-9, atol=1e-12)


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


def test_a_rule_for_few_is_given_few() -> None:
    with pytest.raises(InvalidValueError, match=r"aggregation_options.tolerated must be .*593,775"):
        Server(num_participants=30, aggregation=MDA(tolerated=6))
    Server(num_participants=30, aggregation=Combination(MDA(tolerated=6), Bucketing(size=2)))


def test_a_rule_on_a_large_model_is_compiled_and_the_same() -> None:
    rng = np.random.default_rng(0)
    model = rng.normal(size=20_000)
    uploads = [(np.sort(rng.permutation(20_000)[:9_000]), rng.normal(size=9_000)) for _ in range(5)]
    for rule in part_names("aggregation"):
        part = find_part("aggregation", rule)()
        if part.has_root_data:
            continue
        large = aggregate(model, uploads, part)
        small = model.copy()
        inside = [(indices[indices < 300], values[indices < 300]) for indices, values in uploads]
        if part.over == "entries":
            small[:300] = aggregate(model[:300], inside, part)
            np.testing.assert_allclose(large[:300], small[:300], rtol=1e-9, atol=1e-12)
        assert np.isfinite(large).all()


def test_synthetic_clients_have_targets_of_their_own_where_the_scenario_says_so() -> None:
    scenario = Scenario(**SIZES, data=Data(target_spread=0.5, noise_variance=0.0))
    samples = SyntheticSource(scenario, partition=2, seed=0).read(Position(), 5)
    fleet = draw_fleet(scenario)
    own = fleet.target + fleet.target_offsets[2]
    np.testing.assert_allclose(samples.targets, samples.inputs @ own)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_mask_for_all_gives_the_bits_of_a_mask_each(dtype):
    rng = np.random.default_rng(0)
    for size in (3, 700, 3000):
        model = rng.standard_normal(size).astype(dtype)
        model[0] = -0.0
        shared = np.sort(rng.choice(size, size // 2, replace=False))
        values = rng.standard_normal((5, shared.size)).astype(dtype)
        together = [(shared, row) for row in values]
        apart = [(shared.copy(), row) for row in values]
        joined = [aggregate(model, uploads, rule=Mean()) for uploads in (together, apart)]
        assert joined[0].dtype == dtype
        assert joined[0].tobytes() == joined[1].tobytes()
