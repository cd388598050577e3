"""Rules that remember do in the engine what their plain Python says, and others are refused by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import psofed
from psofed import Aggregation, PsofedError, Scenario, Selection
from psofed.parts.attacks import Gaussian
from psofed.testing import check_part

pytestmark = [pytest.mark.parts, pytest.mark.engine]

BASE = Scenario(
    num_clients=7, dimension=4, num_participants=4, num_shared=2, iterations=30,
    attack=Gaussian(num_byzantine=2, probability=0.5),
)  # fmt: skip


MODULE = '''
import numpy as np

from psofed import Aggregation


class SmoothedMean(Aggregation):
    """Moves each entry towards an average of what was sent so far."""

    def memory_size(self, num_clients, dimension):
        return dimension

    def combine(self, numbers, memory):
        memory[numbers.entry] += 0.5 * (np.mean(numbers.values) - memory[numbers.entry])
        return memory[numbers.entry]

class ClientMemory(Aggregation):
    """The mean of what is remembered of every client's updates, those of absent ones included."""

    over = "vectors"

    def memory_size(self, num_clients, dimension):
        return num_clients * dimension

    def combine(self, updates, memory, out):
        dimension = memory.size // updates.num_clients
        for p in range(updates.changes.shape[0]):
            for j in range(out.size):
                place = updates.clients[p] * dimension + updates.entries[j]
                memory[place] = 0.7 * memory[place] + 0.3 * updates.changes[p, j]
        for j in range(out.size):
            for k in range(updates.num_clients):
                out[j] += memory[k * dimension + updates.entries[j]] / updates.num_clients

class SlowingMean(Aggregation):
    """A mean that moves less and less, as a value that is returned."""

    over = "vectors"

    def memory_size(self, num_clients, dimension):
        return 1

    def combine(self, updates, memory):
        memory[0] += 1.0
        return np.sum(updates.changes, axis=0) / (4.0 + memory[0])
'''


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, type[Aggregation]]:
    path = tmp_path_factory.mktemp("plugin") / "psofed_test_rules_with_memory.py"
    path.write_text(MODULE, encoding="utf-8")
    own = psofed.load_plugin(path)
    return {rule.kind: rule for rule in (own.SmoothedMean, own.ClientMemory, own.SlowingMean)}


CHANGES: dict[str, dict[str, Any]] = {
    "one mask": {},
    "own masks": {"selection": Selection(coordinated=False)},
    "mixed": {"pre_aggregation": "nnm"},
    "online-fed": {"algorithm": "online-fed"},
    "delayed": {"delay": psofed.delays.Geometric(ratio=0.5, longest=3)},
}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((kind, change) for kind in ("smoothed-mean", "slowing-mean") for change in CHANGES),
        *(("client-memory", change) for change in ("one mask", "own masks")),
    ],
)
def test_a_rule_with_memory_computes_what_its_plain_python_says(
    as_literally: Callable, rules: dict[str, type[Aggregation]], kind: str, change: str
) -> None:
    scenario = BASE.replace(aggregation=rules[kind](), **CHANGES[change])
    result = as_literally(scenario, 3, 5, rtol=1e-9, atol=1e-13)
    assert result.notes == (), "it is compiled"


@pytest.mark.parametrize("change", sorted(set(CHANGES) - {"mixed"}))
def test_remembered_clipping_computes_what_its_plain_python_says(as_literally: Callable, change: str) -> None:
    scenario = BASE.replace(aggregation="remembered-clipping", **CHANGES[change])
    assert as_literally(scenario, 3, 5, rtol=1e-9, atol=1e-13).notes == (), "it is compiled"


def test_a_rule_that_remembers_each_client_is_refused_after_mixing() -> None:
    """The scenario itself is refused, before anything is compiled."""
    with pytest.raises(psofed.NotCoveredError, match=r'"remembered-clipping" remembers each client.*"nnm" mixes'):
        BASE.replace(aggregation="remembered-clipping", pre_aggregation="nnm")


def test_the_conformance_kit_accepts_a_rule_with_memory(rules: dict[str, type[Aggregation]]) -> None:
    check_part(rules["slowing-mean"]())


def test_a_memory_that_is_not_declared_or_not_taken_is_refused_by_name() -> None:
    with pytest.raises(PsofedError, match=r'aggregation "forgets-to-say" .* combine\(self, numbers, memory\)'):

        class ForgetsToSay(Aggregation):
            def combine(self, numbers: Any, memory: np.ndarray) -> float:
                return 0.0

    with pytest.raises(PsofedError, match=r'aggregation "forgets-to-take"'):

        class ForgetsToTake(Aggregation):
            def memory_size(self, num_clients: int, dimension: int) -> int:
                return 1

            def combine(self, numbers: Any) -> float:
                return 0.0

    with pytest.raises(PsofedError, match=r'aggregation "takes-too-much"'):

        class TakesTooMuch(Aggregation):
            def combine(self, numbers: Any, server: float, weights: np.ndarray) -> float:
                return 0.0
