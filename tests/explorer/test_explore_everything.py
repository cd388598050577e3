"""Everything that a scenario can hold has its control in the explorer, and comes out of it as it went in."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import psofed
from psofed.common.errors import PsofedError
from psofed.common.options import option_of, value_type
from psofed.explore.drafts import LIMITS, changed, from_address, make_scenario, parse_value, to_address
from psofed.explore.form import Field, form_groups
from psofed.parts.registry import FAMILIES, built_in_parts, find_part
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_scenario

pytestmark = pytest.mark.explore

FLEET = psofed.Scenario(num_clients=10, dimension=4, num_participants=5, stepsize=0.1, iterations=400)
# Where a family's kind and its options stand in a scenario.
PLACES = {
    "attack": ("attack.kind", "attack"),
    "aggregation": ("aggregation", "aggregation_options"),
    "pre_aggregation": ("pre_aggregation.kind", "pre_aggregation"),
    "defence": ("defence.kind", "defence"),
    "algorithm": ("algorithm", "algorithm_options"),
    "pattern": ("selection.pattern", "selection"),
    "drift": ("drift.kind", "drift"),
    "learner": ("learner.kind", "learner"),
    "stream": ("data.stream", "data.stream"),
    "model": ("model.kind", "model"),
    "function": ("data.function", "data.function"),
    "availability": ("availability.kind", "availability"),
    "channel": ("channel.up.kind", "channel.up"),
    "delay": ("delay.kind", "delay"),
}
CANDIDATES = (0.25, 2, 3, 1, 0.75, 12, 150, 1.5, True, False, "x")


def test_every_family_has_its_place_in_the_form() -> None:
    assert set(PLACES) == set(FAMILIES)


def with_part(family: str, kind: str) -> Scenario:
    """A scenario with this part, every option of it at another value than its default, as far as it is allowed."""
    where, table = PLACES[family]
    mapping = changed(FLEET.to_mapping(), where, kind)
    if family == "function":
        mapping = changed(mapping, "model.kind", "rff")
    scenario = make_scenario(mapping, LIMITS)
    part = next((part for part in scenario.parts() if part.family == family), None)
    for name, field in ({} if part is None else part.options()).items():
        if name in ("num_byzantine", "clients", "features"):
            continue
        for value in (*reversed(option_of(field).choices or ()), *CANDIDATES):
            if value == getattr(part, name) or (isinstance(value, str) and value_type(field)[0] != "str"):
                continue
            try:
                other = changed(mapping, f"{table}.{name}", value)
                made = make_scenario(other, LIMITS)
            except PsofedError:
                continue
            mapping, scenario = made.to_mapping(), made
            break
    return scenario


def leaves(scenario: Scenario) -> Iterator[str]:
    """Every field of a scenario by its dotted name, those of its parts with them."""
    for field in dataclasses.fields(scenario):
        value = getattr(scenario, field.name)
        if field.name == "channel":
            for direction in ("up", "down"):
                table = f"channel.{direction}"
                yield f"{table}.kind"
                for part in () if value is None else getattr(value, direction):
                    yield from (f"{table}.{name}" for name in part.options())
        elif field.name in PLACES:
            where, table = PLACES[field.name]
            yield where
            yield from () if value is None else (f"{table}.{name}" for name in value.options())
        elif field.name == "selection":
            yield from ("selection.pattern", "selection.coordinated")
            yield from (f"selection.{name}" for name in value.pattern.options())
        elif field.name == "data":
            yield from (f"data.{inner.name}" for inner in dataclasses.fields(value))
            for inner in (value.stream, value.function):
                yield from () if inner is None else (f"{inner.table}.{name}" for name in inner.options())
        else:
            yield field.name


def shown_fields(scenario: Scenario) -> dict[str, Field]:
    groups = form_groups(scenario, scenario.to_mapping(), LIMITS)
    return {field.name: field for fields in groups.values() for field in fields}


def needs_no_field(name: str, scenario: Scenario) -> bool:
    """What there is nothing to say about: it does not apply to this scenario, or is another field in disguise."""
    return (
        (name == "data.input_dimension" and scenario.is_linear)
        or (name == "data.covariances" and scenario.data.covariances is None)
        or (name in ("data.input_variance", "data.input_correlation") and scenario.data.covariances is not None)
        or (name == "data.input_correlation" and not scenario.data.stream.is_independent)
        or (name == "attack.num_byzantine" and bool(scenario.attack and scenario.attack.clients))
        or (name == "data.rows" and scenario.data.rows is None)
        or name == "model.features"  # is the dimension
    )


def check(scenario: Scenario) -> None:
    """Every field is shown; what is shown is what the scenario holds; address and TOML give it back."""
    fields = shown_fields(scenario)
    for name in leaves(scenario):
        assert name in fields or needs_no_field(name, scenario), name
    mapping = scenario.to_mapping()
    for name, field in fields.items():
        is_default = name == "data.input_dimension" and scenario.data.input_dimension is None
        if not field.is_fixed and field.value != "" and not is_default:
            again = changed(mapping, name, parse_value(field.value))
            assert make_scenario(again, LIMITS) == scenario, name
    restored, _ = from_address(to_address(scenario, "network_mse"))
    assert restored is not None
    assert make_scenario(restored, LIMITS) == scenario
    assert Scenario.from_toml(scenario.to_toml()) == scenario


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_scenario_with_any_part_comes_out_as_it_went_in(family: str) -> None:
    for part in built_in_parts(family):
        check(with_part(family, part.kind))


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_description_names_every_part_but_the_defaults(family: str) -> None:
    usual = {"none", *(part.kind for part in FLEET.parts())}
    for part in built_in_parts(family):
        assert part.kind in usual or part.kind in describe_scenario(with_part(family, part.kind)), part.kind


COVARIANCES = [[[1.0, 0.2, 0, 0], [0.2, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 2.0]]] * 10


@pytest.mark.parametrize(
    "scenario",
    [
        FLEET.replace(attack=psofed.attacks.Gaussian(clients=(3, 7))),
        FLEET.replace(data=psofed.Data(covariances=COVARIANCES)),
        FLEET.replace(data=psofed.Data(noise_variance=[0.01 * k for k in range(10)], input_variance=0.5)),
        FLEET.replace(data=psofed.Data(target_spread=0.125, input_correlation=-0.5, test_instances=77)),
        FLEET.replace(data=psofed.Data(fleet_seed=2**40, test_input_variance=0.25)),
        FLEET.replace(uplink="redrawn", selection=psofed.Selection(pattern="round-robin", coordinated=False)),
        FLEET.replace(dimension=20, model=psofed.models.Rff(features=20), data=psofed.Data(input_dimension=3)),
        FLEET.replace(availability=psofed.availabilities.Bernoulli(probability=psofed.Uniform(0.25, 0.5))),
    ],
    ids=["clients", "covariances", "each-client", "targets", "seed", "masks", "features", "per-client"],
)
def test_the_other_tables_come_out_as_they_went_in(scenario: Scenario) -> None:
    check(scenario)


def test_covariances_are_kept_and_said_to_be() -> None:
    field = shown_fields(FLEET.replace(data=psofed.Data(covariances=COVARIANCES)))["data.covariances"]
    assert (field.is_fixed, field.value, field.hint) == (True, "10 matrices, 4 by 4", "from the file")


def test_named_byzantine_clients_can_be_put_in_and_taken_away() -> None:
    mapping = changed(FLEET.to_mapping(), "attack.kind", "gaussian")
    mapping = changed(mapping, "attack.clients", parse_value("[2, 4]"))
    assert make_scenario(mapping, LIMITS).attack.clients == (2, 4)
    attack = make_scenario(changed(mapping, "attack.clients", ""), LIMITS).attack
    assert (attack.clients, attack.num_byzantine) == ((), 2)


@pytest.mark.parametrize("value", [1e308, 5e-324, 1e-300, 0.0])
def test_a_form_can_be_drawn_whatever_number_is_typed(value: float) -> None:
    """Sliders have ends, and every other field can still be set, with the largest and the smallest of numbers."""
    extreme = FLEET.replace(
        attack=psofed.attacks.Gaussian(num_byzantine=1, variance=value),
        drift=psofed.drifts.RandomWalk(variance=value or 1.0),
        data=psofed.Data(noise_variance=value, input_variance=value, test_input_variance=value or 1.0),
    )
    for field in shown_fields(extreme).values():
        if field.slider is not None:
            assert math.isfinite(field.slider.low), field
            assert field.slider.low < field.slider.high < math.inf, field
            assert 0 < field.slider.step < math.inf, field


PLUGIN = '''
import psofed


class Drumming(psofed.Attack):
    """Beats every few iterations."""

    height: float = psofed.option(0.3, low=0.0, high=2.0, text="how high", strength=True)
    every: int = psofed.option(4, low=1, text="iterations from beat to beat")
    sign: str = psofed.option("up", choices=("up", "down"), text="which way")
    only_first: bool = psofed.option(False, text="the first entry alone")

    def corrupt(self, upload):
        return upload.value + self.height


class FirstOnly(psofed.Aggregation):
    """Takes one number."""

    place: int = psofed.option(0, low=0, text="which")

    def combine(self, entry):
        return entry.values[0]
'''


def test_parts_of_ones_own_come_out_as_they_went_in(tmp_path: Path) -> None:
    plugin = tmp_path / "drumming_parts.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    psofed.load_plugin(plugin)
    for family, kind in (("attack", "drumming"), ("aggregation", "first-only")):
        scenario = with_part(family, kind)
        assert any(part.kind == kind for part in scenario.parts())
        check(scenario)
    assert find_part("attack", "drumming").__module__ != "__main__"
