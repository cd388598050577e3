"""Every part, no exceptions: documented, a value, and harmless where it never happens."""

import math
from dataclasses import MISSING, FrozenInstanceError

import numpy as np
import pytest

from psofed import Scenario
from psofed.common.options import option_of
from psofed.parts.attacks import Gaussian
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES, built_in_parts, find_part
from psofed.testing import check_part
from reference.draws import draw_trial

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.testing, pytest.mark.takes(36)]

# The built-in ones: parts that other tests have made may be known here as well, or not.
every_part = pytest.mark.parametrize(
    ("family", "kind"), [(family, part.kind) for family in FAMILIES for part in built_in_parts(family)]
)


def make(family: str, kind: str) -> Part:
    """The part with its default options, and 3 for those that have none."""
    part = find_part(family, kind)
    needed = {"num_byzantine": 2, "probability": 0.5} if family == "attack" else {}
    for name, field in part.options().items():
        if field.default is MISSING:
            needed[name] = 3 if option_of(field).high >= 3 else 0.5
    return part(**needed)


@every_part
def test_every_part_passes_the_suite_that_users_are_given(family: str, kind: str) -> None:
    """The suite checks documentation, equality, hashes and pickling too."""
    assert check_part(make(family, kind)).notes == ()


@every_part
def test_every_part_is_a_documented_value_that_cannot_be_changed(family: str, kind: str) -> None:
    part, one = find_part(family, kind), make(family, kind)
    assert part.kind == kind
    assert part.summary().endswith(".")
    mapping = {name: value for name, value in one.to_mapping().items() if name != "kind"}
    assert part.from_mapping(mapping) == one
    for name, field in part.options().items():
        assert option_of(field).text, f"{kind}: {name} has no line of documentation"
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, None)


def test_attacks_and_normals_are_drawn_with_their_stated_moments() -> None:
    attack = Gaussian(num_byzantine=4, probability=0.3)
    shocks = draw_trial(Scenario(num_clients=6, dimension=5, iterations=4000, attack=attack), 2, 0).shocks
    assert not shocks.attacking[:, 4:].any()
    attacking = shocks.attacking[:, :4]
    assert abs(attacking.mean() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / attacking.size)
    for normals in (shocks.normals.reshape(-1, 5), shocks.common_normals):
        assert abs(normals.mean()) < 4 * math.sqrt(1 / normals.size)
        assert abs(np.mean(normals**2) - 1) < 4 * math.sqrt(2 / normals.size)
        covariance = np.cov(normals.T)[np.triu_indices(5, 1)]
        assert np.abs(covariance).max() < 4.5 / math.sqrt(len(normals))


def test_the_same_client_attacks_the_same_whoever_else_does_and_however() -> None:
    few = Scenario(num_clients=6, dimension=3, iterations=50, attack=Gaussian(num_byzantine=2, probability=0.5))
    shocks = draw_trial(few, 1, 0).shocks
    for kind in (part.kind for part in built_in_parts("attack")):
        attack = find_part("attack", kind)(num_byzantine=5, probability=0.5)
        others = draw_trial(few.replace(attack=attack), 1, 0).shocks
        assert np.array_equal(shocks.attacking[:, :2], others.attacking[:, :2])
        assert np.array_equal(shocks.normals, others.normals)
        assert np.array_equal(shocks.common_normals, others.common_normals)
