"""Every pre-aggregation, no exceptions: before every rule, in the engine and literally, in files, sweeps and theory."""

from collections.abc import Callable

import numpy as np
import pytest

import psofed
from psofed import NotCoveredError, Scenario, Selection, simulate
from psofed.parts.aggregations import Median
from psofed.parts.attacks import DropOut, Gaussian, NonFinite
from psofed.parts.plain import mix_uploads
from psofed.parts.pre_aggregations import ARC, NNM, Bucketing
from psofed.parts.registry import find_part, part_names

pytestmark = [pytest.mark.parts, pytest.mark.engine]

KINDS = part_names("pre_aggregation")
RULES = [kind for kind in part_names("aggregation") if not find_part("aggregation", kind)().remembers_clients()]
NAN = np.nan


def of(pre: object, **changes: object) -> Scenario:
    sizes = {"num_clients": 8, "dimension": 4, "num_participants": 5, "num_shared": 2, "iterations": 20}
    attack = NonFinite(num_byzantine=3, probability=0.5)
    values = {**sizes, "pre_aggregation": pre, "attack": attack, **changes}
    return Scenario(**{"selection": Selection(coordinated=False), **values})


@pytest.mark.parametrize("rule", RULES)
def test_every_pair_does_in_the_engine_what_it_does_literally(as_literally: Callable, rule: str) -> None:
    for kind in KINDS:
        result = as_literally(of(kind, aggregation=rule), 2, 4)
        assert result.notes == (), "both are compiled"


@pytest.mark.parametrize("algorithm", part_names("algorithm"))
def test_every_pre_aggregation_serves_every_algorithm(as_literally: Callable, algorithm: str) -> None:
    for kind in KINDS:
        as_literally(of(kind, algorithm=algorithm, aggregation=Median()), 2, 4, rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_theory_refuses_it_by_name(kind: str) -> None:
    with pytest.raises(NotCoveredError, match=f'"{kind}"'):
        psofed.predict(Scenario(num_clients=6, dimension=3, pre_aggregation=kind))


def test_all_are_swept_from_names_and_from_parts() -> None:
    base = of(None, iterations=2, aggregation="median")
    parts = [None, *(find_part("pre_aggregation", kind)() for kind in KINDS)]
    result = psofed.sweep(base, {"pre_aggregation": parts, "num_shared": [1, 2]}, trials=1)
    assert result.to_dataset()["pre_aggregation"].values.tolist() == ["none", *KINDS]
    named = psofed.sweep(base, {"pre_aggregation.kind": list(KINDS)}, trials=1)
    assert [s.pre_aggregation.kind for s in named.grid.scenarios()] == list(KINDS)


@pytest.mark.parametrize(
    ("pre", "rule"),
    [
        (NNM(tolerated=0), "median"),
        (NNM(tolerated=0), "krum"),
        (Bucketing(size=1), "mean"),
        (Bucketing(size=3), "mean"),
        (Bucketing(size=6), "median"),
        (ARC(tolerated=0), "mean"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("attack", [Gaussian, DropOut])
def test_what_leaves_nothing_but_the_mean_is_the_mean(pre: object, rule: str, attack: type) -> None:
    """Buckets of equal size, silent participants included; mixtures of all; nobody shortened."""
    plain = of(None, attack=attack(num_byzantine=3, probability=0.5), num_participants=6, iterations=60)
    mixed = plain.replace(pre_aggregation=pre, aggregation=rule)
    results = [simulate(scenario, trials=4, keep_trials=True) for scenario in (plain, mixed)]
    assert np.allclose(*(result.trial_curves["server_msd"] for result in results), rtol=1e-9)


@pytest.mark.parametrize("rule", ["median", "krum"])
@pytest.mark.parametrize("pre", [Bucketing(size=1), ARC(tolerated=0)], ids=repr)
def test_what_changes_nothing_changes_nothing(pre: object, rule: str) -> None:
    plain = of(None, aggregation=rule)
    results = [simulate(s, trials=4, keep_trials=True) for s in (plain, plain.replace(pre_aggregation=pre))]
    assert np.allclose(*(result.trial_curves["server_msd"] for result in results), rtol=1e-9)


def test_a_mixed_upload_holds_what_those_mixed_into_it_shared() -> None:
    """An entry that one of them did not share counts as the server's own value, 1."""
    uploads = np.array([[3.0, NAN, NAN], [NAN, 5.0, NAN], [NAN, NAN, NAN]])
    mixed = mix_uploads(Bucketing(size=2), uploads, np.ones(3), uniforms=np.array([0.1, 0.2, 0.3]))
    assert np.array_equal(mixed, [[2.0, 3.0, NAN], [NAN, NAN, NAN]], equal_nan=True)
    # Of the two who answered each has itself and the other; the silent one stays silent.
    mixed = mix_uploads(NNM(tolerated=0), uploads, np.ones(3), uniforms=np.zeros(3))
    assert np.array_equal(mixed, [[2.0, 3.0, NAN], [2.0, 3.0, NAN], [NAN] * 3], equal_nan=True)
    mixed = mix_uploads(NNM(tolerated=1), uploads, np.ones(3), uniforms=np.zeros(3))
    assert np.array_equal(mixed, uploads, equal_nan=True)


def test_bucketing_draws_a_fresh_order_in_every_iteration_and_trial() -> None:
    from reference.draws import draw_mix_uniforms

    scenario = of("bucketing")
    drawn = [draw_mix_uniforms(scenario, 0, t, n, np.arange(8)) for t in range(20) for n in range(20)]
    assert len({tuple(np.argsort(uniforms)) for uniforms in drawn}) > 390
    assert abs(np.mean(drawn) - 0.5) < 4.5 * (1 / 12) ** 0.5 / np.size(drawn) ** 0.5


def test_a_pre_aggregation_takes_its_options_from_toml() -> None:
    scenario = of(NNM(tolerated=2))
    assert "[pre_aggregation]" in scenario.to_toml()
    assert Scenario.from_toml(scenario.to_toml()) == scenario
