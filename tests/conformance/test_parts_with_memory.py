"""Parts that keep a memory for each client, and attacks that know their accomplices: the examples."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import psofed
from psofed import Links, NotCoveredError, PsofedError, Scenario, Selection, simulate
from psofed.parts import Algorithm, Attack, Availability, Channel, Delay
from psofed.parts.channels import Lossy
from psofed.parts.contexts import Transmission
from psofed.parts.part import Part
from psofed.parts.registry import FAMILIES
from psofed.testing.families import check_memory
from reference.literal import run_trial

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.testing]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "parts_with_memory.py"
BASE = Scenario(num_clients=7, dimension=5, num_participants=4, num_shared=2, iterations=30)


@pytest.fixture(scope="module")
def own() -> ModuleType:
    return psofed.load_plugin(EXAMPLES)


def test_the_guide_shows_one_of_the_examples() -> None:
    guide = (ROOT / "docs" / "write_a_part.md").read_text(encoding="utf-8").split("## Parts that remember")[1]
    assert re.search(r"```py\n(class .*?)```", guide, re.DOTALL)[1] in EXAMPLES.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_engine_equals_the_literal_form(as_literally: Callable, own: ModuleType) -> None:
    """All of them at once, with two groups of attackers, sleeping clients, lost messages and delays."""
    scenario = BASE.replace(
        attack=[own.Stale(clients=(0, 3), age=4, probability=0.7), own.TakingTurns(clients=(1, 5), probability=1.0)],
        selection=Selection(coordinated=False),
        channel=Links(up=(own.Rounded(step=0.1), Lossy(probability=0.1)), down=Lossy(probability=0.3)),
        availability=own.Tired(work=2, server_knows=False),
        delay=own.Queue(longest=2),
    )
    assert not as_literally(scenario, 3, 5, rtol=1e-10, atol=0.0).notes
    assert Scenario.from_toml(scenario.to_toml()) == scenario


def test_a_stale_client_sends_its_model_of_some_iterations_ago(own: ModuleType) -> None:
    """Alone with the server and sharing all, its upload is the server's next model."""
    scenario = Scenario(num_clients=1, dimension=2, num_participants=1, iterations=30, num_shared=2)
    scenario = scenario.replace(attack=own.Stale(num_byzantine=1, age=20, probability=1.0))
    models = run_trial(scenario, 0, 0).models
    assert np.allclose(models[21:, 0], models[1:-20, 1], rtol=1e-12)
    assert not models[1:21, 0].any()


def test_error_feedback_sends_later_what_rounding_lost(own: ModuleType) -> None:
    channel, memory, none = own.Rounded(step=1.0), np.zeros(1), np.zeros(0)
    received = np.zeros(8)
    for n in range(8):
        message = Transmission(np.array([0.3]), none, np.array([0]), 0, n, none, none, 0.0)
        channel.transmit(message, memory, received[n : n + 1])
    assert received.tolist() == [0, 1, 0, 0, 0, 1, 0, 0]
    assert received.sum() + memory[0] == pytest.approx(8 * 0.3)


def test_accomplices_are_those_of_the_group_and_of_all_groups(own: ModuleType) -> None:
    seen: list[tuple] = []

    class Witnessing(Attack):
        """Writes down whom it knows."""

        knows = "accomplices"

        def corrupt(self, upload: Any) -> float:
            seen.append(tuple(map(tuple, (upload.group, upload.byzantine, upload.accomplice_clients))))
            return float(upload.value)

    groups = [Witnessing(clients=(4, 1), probability=1.0), own.TakingTurns(clients=(6,), probability=1.0)]
    run_trial(BASE.replace(attack=groups, iterations=20), 0, 0)
    assert {group for group, _, _ in seen} == {(1, 4)}
    assert {everyone for _, everyone, _ in seen} == {(1, 4, 6)}
    assert {those for _, _, those in seen} == {(1,), (4,), (1, 4)}


def test_what_cannot_be_combined_is_refused_by_name(own: ModuleType) -> None:
    with pytest.raises(NotCoveredError, match='"stale" remembers the models of its clients, which hold none'):
        simulate(BASE.replace(algorithm="online-fed", attack=own.Stale(num_byzantine=1)), trials=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_class_without_its_familys_methods_is_refused_when_it_is_made(family: str) -> None:
    base = next(kind for kind in Part.__subclasses__() if kind.family == family)
    with pytest.raises(PsofedError, match=rf'{family.replace("_", "-")} "idle" .*needs a method {base.methods[0]}'):
        type("Idle", (base,), {"__doc__": "Does nothing."})


def test_a_method_that_some_families_need_besides_is_asked_for() -> None:
    with pytest.raises(PsofedError, match=r'delay "endless" .* needs a method longest_delay'):
        type("Endless", (Delay,), {"duration": lambda self, departure: 1})
    with pytest.raises(PsofedError, match=r'algorithm "mute" .* needs a method exchange'):
        type("Mute", (Algorithm,), {"traffic": lambda self, scenario: None})


@pytest.mark.parametrize(
    ("base", "method"), [(Attack, "corrupt"), (Channel, "transmit"), (Availability, "is_available")]
)
def test_a_memory_that_no_method_takes_is_found(base: type, method: str) -> None:
    space = {method: lambda self, *_: None, "memory_size": lambda self, dimension: 2}
    forgetful = type(f"_Forgetful{method}", (base,), space)
    part = forgetful(num_byzantine=1) if base is Attack else forgetful()
    assert list(check_memory(part)) == [f"memory_size is 2, but {method} has no argument `memory` (after the first)"]
