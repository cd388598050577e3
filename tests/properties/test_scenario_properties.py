"""What must hold for any scenario (Hypothesis)."""

import contextlib
import sys
from dataclasses import Field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psofed import Data, Scenario, Selection, Uniform
from psofed.common.errors import PsofedError
from psofed.common.options import option_of, value_type
from psofed.parts.registry import find_part, part_names
from reference.draws import draw_trial

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from few_trials import advance

pytestmark = [pytest.mark.scenario, pytest.mark.parts]

variances = st.floats(0, 1e6, allow_nan=False)


def own_options(kind: str) -> dict[str, st.SearchStrategy]:
    """Any value of every option that is this attack's own."""

    def any_value(field: Field) -> st.SearchStrategy:
        if option_of(field).choices:
            return st.sampled_from(option_of(field).choices)
        return st.integers(1, 9) if value_type(field)[0] == "int" else variances

    return {name: any_value(field) for name, field in find_part("attack", kind).own_options().items()}


@st.composite
def scenarios(draw: st.DrawFn, most_clients: int = 30, most_entries: int = 12) -> Scenario:
    clients, dimension = draw(st.integers(1, most_clients)), draw(st.integers(1, most_entries))
    variance = st.one_of(
        variances,
        st.lists(variances, min_size=clients, max_size=clients),
        st.tuples(variances, variances).map(lambda ends: Uniform(*sorted(ends))),
    )
    attackers = {
        "num_byzantine": st.integers(0, clients),
        "probability": st.floats(0, 1),
        "byzantine_set": st.sampled_from(["fixed", "redrawn"]),
    }
    attack = st.sampled_from(part_names("attack")).flatmap(
        lambda kind: st.builds(find_part("attack", kind), **attackers, **own_options(kind))
    )
    rule = find_part("aggregation", draw(st.sampled_from(part_names("aggregation"))))()
    mixing = st.none() | st.sampled_from(part_names("pre_aggregation"))
    return Scenario(
        num_clients=clients,
        dimension=dimension,
        num_participants=draw(st.integers(1, clients)),
        num_shared=draw(st.integers(1, dimension)),
        stepsize=draw(st.floats(1e-6, 1.0)),
        iterations=draw(st.integers(1, 10**6)),
        uplink=draw(st.sampled_from(["same", "redrawn"])),
        aggregation=rule,
        pre_aggregation=None if rule.remembers_clients() else draw(mixing),
        selection=Selection(pattern=draw(st.sampled_from(part_names("pattern"))), coordinated=draw(st.booleans())),
        data=Data(
            input_variance=draw(variance),
            noise_variance=draw(variance),
            input_correlation=draw(st.floats(-0.99, 0.99)),
            fleet_seed=draw(st.integers(0, 2**64)),
        ),
        attack=draw(st.none() | attack),
    )


@given(scenarios())
def test_any_scenario_survives_toml_and_back(scenario: Scenario) -> None:
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    assert Scenario.from_mapping(scenario.to_mapping()) == scenario


@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail_otherwise_than_by_saying_so(text: str) -> None:
    with contextlib.suppress(PsofedError):
        Scenario.from_toml(text)


@settings(deadline=None, max_examples=25)
@given(scenarios(most_clients=8, most_entries=6))
def test_draws_keep_their_promises(scenario: Scenario) -> None:
    draws = draw_trial(scenario.replace(iterations=7), seed=1, trial=5)
    assert (draws.download_masks.sum(axis=-1) == scenario.num_shared).all()
    assert (draws.upload_masks.sum(axis=-1) == scenario.num_shared).all()
    assert np.array_equal(draws.upload_masks[:-1], draws.download_masks[1:])
    assert (draws.participants.sum(axis=1) == scenario.num_participants).all()
    assert np.isfinite(draws.inputs).all()
    if scenario.uplink == "same":
        assert np.array_equal(draws.participants, draws.uploaders)


@settings(deadline=None, max_examples=15)
@given(scenarios(most_clients=8, most_entries=6))
def test_full_sharing_by_all_leaves_every_client_with_the_servers_model(scenario: Scenario) -> None:
    """M = D and everybody participates: the masks cannot matter, whatever their pattern.

    As plain Python, since most examples have other parts, each of which would be compiled.
    """
    full = scenario.replace(num_shared=scenario.dimension, num_participants=scenario.num_clients, iterations=5)
    patterns = [full.replace(selection=Selection(pattern=name)) for name in part_names("pattern")]
    first, second = (advance(each, 0, 5)[0][:, 1] for each in patterns)
    assert np.allclose(first, second, rtol=1e-9)
