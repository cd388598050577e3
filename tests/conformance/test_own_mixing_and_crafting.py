"""Pre-aggregations, and attacks on vectors, of one's own: compiled, as plain Python, checked, and refused in words."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import psofed
from psofed import Scenario, simulate
from psofed.testing import check_part

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.testing, pytest.mark.takes(26)]

MODULE = '''
import numpy as np

from psofed.parts import Attack, PreAggregation, option


class Halved(PreAggregation):
    """Every update counts for half."""

    def weigh(self, updates, out):
        for p in range(out.shape[0]):
            out[p, p] = 0.5


class SpelledHalved(PreAggregation):
    """The same, in Python that Numba does not know."""

    def weigh(self, updates, out):
        for p in range(out.shape[0]):
            out[p, p] = float(f"{0.5:.3f}")


class Grudge(Attack):
    """Sends the honest mean update of the first iteration that anybody saw, for ever, turned round."""

    knows = "everyone"

    def group_memory_size(self, num_clients, dimension):
        return 1 + dimension

    def craft(self, conspiracy, out):
        memory = conspiracy.memory
        if memory[0] == 0.0 and conspiracy.honest.shape[0] > 0:
            memory[0] = 1.0
            for i in range(conspiracy.entries.size):
                memory[1 + conspiracy.entries[i]] = np.mean(conspiracy.honest[:, i])
        for a in range(out.shape[0]):
            for i in range(out.shape[1]):
                out[a, i] = -memory[1 + conspiracy.entries[i]]


class SpelledGrudge(Grudge):
    """The same, in Python that Numba does not know."""

    def craft(self, conspiracy, out):
        Grudge.craft(self, conspiracy, out)
        out[:] = np.array([[float(f"{number:.17g}") for number in row] for row in out]).reshape(out.shape)


class Both(Attack):
    """Changes numbers and vectors."""

    knows = "everyone"

    def corrupt(self, upload):
        return upload.value

    def craft(self, conspiracy, out):
        out[:] = 0.0
'''
BASE = Scenario(num_clients=8, dimension=4, num_participants=5, num_shared=2, iterations=15)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path: Path = tmp_path_factory.mktemp("plugin") / "psofed_test_own_mixing.py"
    path.write_text(MODULE, encoding="utf-8")
    return psofed.load_plugin(path)


@pytest.mark.parametrize("name", ["Halved", "Grudge"])
def test_it_keeps_its_promises_compiled_and_as_plain_python(own: ModuleType, name: str) -> None:
    fast, slow = getattr(own, name), getattr(own, f"Spelled{name}")
    assert check_part(fast).notes == ()
    assert "plain Python" in check_part(slow).notes[0]
    scenarios = [
        BASE.replace(pre_aggregation=kind())
        if name == "Halved"
        else BASE.replace(attack=kind(num_byzantine=3, probability=0.6))
        for kind in (fast, slow)
    ]
    curves = [simulate(s, trials=2, keep_trials=True).trial_curves["server_msd"] for s in scenarios]
    assert np.allclose(*curves, rtol=1e-12)


def test_an_attack_with_two_ways_of_attacking_is_told_so(own: ModuleType) -> None:
    with pytest.raises(AssertionError, match="must have one of corrupt"):
        check_part(own.Both)
