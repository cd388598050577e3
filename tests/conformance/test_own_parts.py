"""Parts of the user's own, from a file that is loaded as a plugin, in every package that built-in ones are met in."""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import psofed
from psofed import Data, InvalidValueError, NotCoveredError, PsofedError, Scenario, Selection, load_result, simulate
from psofed.common.equality import same_values
from psofed.engine.hooks import why_python
from psofed.parts.attacks import ConstantBias
from psofed.parts.part import Part
from psofed.parts.registry import find_part, part_names
from psofed.studies.sweeps import Cell, run_cells

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.testing, pytest.mark.studies, pytest.mark.takes(68)]

BASE = Scenario(num_clients=6, dimension=4, num_participants=4, num_shared=2, iterations=12)

# The first class as printed in the design; then one of each family.
MODULE = '''
import psofed
from psofed.parts import Attack, option

class Alternating(Attack):                      # kind = "alternating" in TOML
    """Pushes every number up in even iterations and down in odd ones."""

    size: float = option(1.0, low=0.0, text="how far each number is pushed")

    def corrupt(self, upload):                  # one uploaded number; plain Python
        return upload.value + (self.size if upload.iteration % 2 == 0 else -self.size)


import math

import numpy as np

from psofed.parts import Aggregation, Algorithm, Defence, Drift, Function, Pattern
from psofed.parts.affine import Affine
from psofed.parts.traffic import Exchange


class Whisper(Attack):
    """Adds a little of the server's number, and says so to theory."""

    knows = "server"
    share: float = option(0.1, text="how much of it", strength=True)

    def corrupt(self, upload):
        return upload.value + self.share * upload.server

    def affine(self):
        return Affine(server=self.share)


class MiddleOfAccomplices(Attack):
    """All attackers send the middle of their own numbers."""

    knows = "accomplices"

    def corrupt(self, upload):
        return np.median(upload.accomplices)


class Stale(Attack):
    """Learns that all inputs are the same."""

    def poison(self, sample):
        return np.ones(sample.inputs.size), sample.label


class Nearest(Aggregation):
    """The number nearest to the server's."""

    def combine(self, numbers):
        best = numbers.values[0]
        for value in numbers.values:
            if abs(value - numbers.server) < abs(best - numbers.server):
                best = value
        return best


def length_of(vector):
    return math.sqrt(np.sum(vector * vector))


class Shortest(Aggregation):
    """The shortest update, times a factor."""

    over = "vectors"
    factor: float = option(1.0, low=0.0, high=1.0, text="how much of it is taken")

    def combine(self, updates):
        best = 0
        for p in range(updates.changes.shape[0]):
            if length_of(updates.changes[p]) < length_of(updates.changes[best]):
                best = p
        return self.factor * updates.changes[best]


class Backwards(Pattern):
    """A window that moves backwards."""

    stride: int = option(1, low=1, text="how far it moves")

    def select(self, mask, out):
        for m in range(mask.num_shared):
            out[m] = (mask.client + m - self.stride * mask.iteration) % mask.dimension


class Average(Defence):
    """Suspects clients whose squared scores, smoothed over their uploads, are high."""

    rate: float = option(0.2, low=0.0, high=1.0, open_low=True, text="weight of the newest upload")

    def suspicion(self, evidence, memory):
        newest = 0.0
        for score in evidence.scores:
            newest += min(score**2, 100.0) / evidence.scores.size
        memory[0] += self.rate * (newest - memory[0])
        return memory[0]


class Spiral(Drift):
    """Moves on in its direction, with noise."""

    pace: float = option(0.01, low=0.0, text="per iteration")

    def move(self, step):
        return step.position + self.pace * (step.direction + 0.1 * step.normals)


class Bell(Function):
    """A bell."""

    width: float = option(1.0, low=0.0, open_low=True, text="of the bell")

    def value(self, x):
        return math.exp(-np.sum(x * x) / (2 * self.width**2))


class Shy(Algorithm):
    """Sends a part of the update, rounded at random, and joins it as it is."""

    share: float = option(0.5, low=0.0, high=1.0, text="how much of it is sent")

    def exchange(self, scenario):
        return Exchange(numbers=scenario.dimension, client_uniforms=scenario.dimension)

    def encode(self, message, out):
        for i in range(out.size):
            out[i] = self.share * message.update[i] * (0.5 + message.client_uniforms[i])
'''

# Bodies that Numba cannot compile, bodies that fail, and patterns that choose what there is not.
AWKWARD = '''
import numpy as np

import psofed
from psofed.parts.registry import find_part


def spelled(value: float) -> float:
    """The same number, by way of text: Numba knows no formats."""
    return float(f"{value:.17g}")


class Bookkeeper(psofed.Attack):
    """Does what constant-bias does, with Python that Numba does not know."""

    bias: float = psofed.option(0.5, text="what is added")

    def corrupt(self, upload):
        return spelled(upload.value + self.bias)


class Ledger(psofed.Aggregation):
    """The mean, likewise."""

    def combine(self, numbers):
        return spelled(np.mean(numbers.values))


class LedgerOfVectors(psofed.Aggregation):
    """The mean of vectors, likewise."""

    over = "vectors"

    def combine(self, updates):
        return np.array([spelled(change) for change in updates.changes.mean(axis=0)])


class Detective(psofed.Defence):
    """The largest score so far, likewise."""

    def suspicion(self, evidence, memory):
        memory[0] = max(memory[0], spelled(np.abs(evidence.scores).max()))
        return memory[0]


class Overflowing(psofed.Attack):
    """Adds an integer that needs more than 64 bits on the way, which compiled code does not have."""

    def corrupt(self, upload):
        large = upload.iteration + 1000
        return upload.value + (large * large * large * large * large * large * large) % 7


class Archivist(psofed.Pattern):
    """The first entries, likewise."""

    def select(self, mask, out):
        out[:] = [int(f"{entry:3d}") for entry in range(mask.num_shared)]


class Diary(psofed.Drift):
    """A steady walk, likewise."""

    def move(self, step):
        return step.position + spelled(0.01) * step.direction


class Almanac(psofed.Function):
    """A sine, likewise."""

    def value(self, x):
        return spelled(np.sin(x.sum()))


class Telegraph(psofed.Channel):
    """A noisy link, likewise."""

    draws = "normals"

    def transmit(self, transmission, out):
        out[:] = [spelled(value) for value in transmission.values + 0.1 * transmission.normals]


class Postman(psofed.Delay):
    """Late now and then, likewise."""

    def duration(self, departure):
        return int(spelled(departure.uniform) < 0.5)

    def longest_delay(self):
        return 1


class Courier(psofed.Algorithm):
    """Online-Fed, likewise."""

    def traffic(self, scenario):
        return find_part("algorithm", "online-fed")().traffic(scenario)

    def exchange(self, scenario):
        return find_part("algorithm", "online-fed")().exchange(scenario)

    def encode(self, message, out):
        out[:] = [spelled(number) for number in message.update]


class Faulty(psofed.Attack):
    """Raises an error of its own when it is asked for too much."""

    def corrupt(self, upload):
        if upload.iteration == 3:
            raise ArithmeticError("the attack gave up")
        return upload.value


class FaultyRule(psofed.Aggregation):
    """Raises."""

    def combine(self, numbers):
        raise ValueError(f"no agreement among {len(numbers.values)}")


class FaultyPattern(psofed.Pattern):
    """Raises."""

    def select(self, mask, out):
        raise ValueError(f"no mask for {mask.client}")


class FaultyAlgorithm(Courier):
    """Raises."""

    def encode(self, message, out):
        raise ValueError("no letter")


class TooFar(psofed.Pattern):
    """Chooses the last entries and one beyond."""

    def select(self, mask, out):
        for m in range(mask.num_shared):
            out[m] = mask.dimension - m


class TwiceTheSame(psofed.Pattern):
    """Chooses one entry again and again."""

    def select(self, mask, out):
        for m in range(mask.num_shared):
            out[m] = 0


class BelowZero(psofed.Pattern):
    """Chooses the first entries and one before."""

    def select(self, mask, out):
        for m in range(mask.num_shared):
            out[m] = m - 1
'''


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    path = tmp_path_factory.mktemp("plugin") / "psofed_test_own_parts.py"
    path.write_text(MODULE, encoding="utf-8")
    return psofed.load_plugin(path)


def scenarios_of(own: ModuleType) -> dict[str, Scenario]:
    attackers = {"num_byzantine": 2, "probability": 0.7}
    return {
        "alternating": BASE.replace(attack=own.Alternating(size=0.3, **attackers)),
        "whisper": BASE.replace(attack=own.Whisper(**attackers)),
        "middle-of-accomplices": BASE.replace(attack=own.MiddleOfAccomplices(**attackers)),
        "stale": BASE.replace(attack=own.Stale(**attackers)),
        "nearest": BASE.replace(aggregation=own.Nearest()),
        "shortest": BASE.replace(aggregation=own.Shortest(factor=0.9)),
        "backwards": BASE.replace(selection=Selection(pattern=own.Backwards(stride=3), coordinated=False)),
        "spiral": BASE.replace(drift=own.Spiral(pace=0.02)),
        "bell": BASE.replace(data=Data(function=own.Bell(width=2.0))),
        "average": BASE.replace(
            attack=own.Alternating(size=0.3, **attackers), defence=own.Average(threshold=1.5, return_after=2)
        ),
        "shy": BASE.replace(algorithm=own.Shy(share=0.8), attack=own.Alternating(size=0.3, **attackers)),
    }


KINDS = (
    "alternating", "whisper", "middle-of-accomplices", "stale", "nearest", "shortest", "backwards", "spiral", "bell",
    "average", "shy",
)  # fmt: skip
QUICK = ("alternating", "shortest", "backwards", "bell")  # the others compile more
every_kind = pytest.mark.parametrize("kind", KINDS)


def test_every_family_but_models_has_one_of_its_own_here(own: ModuleType) -> None:
    scenarios = scenarios_of(own)
    assert tuple(scenarios) == KINDS
    own_parts = {part for s in scenarios.values() for part in s.parts() if type(part).__module__ == own.__name__}
    assert {part.family for part in own_parts} == {
        "attack", "aggregation", "defence", "pattern", "drift", "function", "algorithm"
    }  # fmt: skip
    for part in own_parts:
        assert find_part(part.family, part.kind) is type(part)
        assert part.kind in part_names(part.family)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in KINDS]
)
def test_it_is_compiled_and_does_what_it_does_as_plain_python(
    as_literally: Callable, own: ModuleType, kind: str
) -> None:
    scenario = scenarios_of(own)[kind]
    result = as_literally(scenario, 5, 3, 0, 4, rtol=1e-8, atol=1e-13)
    assert result.notes == ()
    assert all(why_python(part) is None for part in scenario.parts())
    without = simulate(BASE, trials=5, seed=3, keep_trials=True)
    assert not np.array_equal(result.trial_curves["server_msd"], without.trial_curves["server_msd"])


@every_kind
def test_it_passes_the_suite_that_users_are_given(own: ModuleType, kind: str) -> None:
    from psofed.testing import check_part

    part = next(p for p in scenarios_of(own)[kind].parts() if p.kind == kind)
    assert check_part(part).notes == ()


@every_kind
def test_it_survives_toml_and_files_of_results(own: ModuleType, tmp_path: Path, kind: str) -> None:
    scenario = scenarios_of(own)[kind]
    text = scenario.to_toml()
    assert f'plugins = ["{own.__name__}"]' in text
    assert Scenario.from_toml(text) == scenario
    result = simulate(scenario, trials=2)
    json.dumps(result.to_json(), allow_nan=False)
    result.save(tmp_path / "result.nc")
    assert load_result(tmp_path / "result.nc").scenario == scenario


def test_without_its_plugin_a_file_says_what_is_missing_and_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "psofed_never_loaded.py").write_text("raise SystemExit('imported')")
    text = 'plugins = ["psofed_never_loaded"]\nnum_clients = 5\ndimension = 2\naggregation = "never-loaded"\n'
    with pytest.raises(InvalidValueError, match=r"aggregation must be .*psofed_never_loaded.*--plugin"):
        Scenario.from_toml(text)


def test_theory_predicts_it_or_refuses_it_by_name(own: ModuleType) -> None:
    for kind, scenario in scenarios_of(own).items():
        refusal = ""
        try:
            psofed.predict(scenario)
        except NotCoveredError as error:
            refusal = str(error)
        assert not refusal or kind in refusal, f"{kind}: {refusal}"
        if kind in ("alternating", "nearest", "shortest", "stale", "spiral"):
            assert refusal, kind


@pytest.fixture(scope="module")
def expected(own: ModuleType) -> list:
    return run_cells([Cell(scenario, 3) for scenario in scenarios_of(own).values()])


def test_they_travel_to_worker_processes(own: ModuleType, expected: list) -> None:
    cells = [Cell(scenario, 3) for scenario in scenarios_of(own).values()]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        found = run_cells(cells, executor=executor)
    assert same_values(list(found), list(expected))


@pytest.mark.slow
def test_they_travel_to_a_dask_cluster(own: ModuleType, expected: list) -> None:
    distributed = pytest.importorskip("distributed")
    from psofed.studies.sweeps.execute import connect

    cells = [Cell(scenario, 3) for scenario in scenarios_of(own).values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dask's own making, at start and end
        with (
            distributed.LocalCluster(
                n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="ERROR"
            ) as cluster,
            connect(cluster.scheduler_address) as executor,
        ):
            found = run_cells(cells, executor=executor)
    assert same_values(list(found), list(expected))


# --- bodies that Numba cannot compile, and bodies that are wrong ---


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("plugin") / "psofed_test_awkward_parts.py"
    path.write_text(AWKWARD, encoding="utf-8")
    return psofed.load_plugin(path)


def test_a_body_that_does_something_else_when_compiled_is_told_so(awkward: ModuleType) -> None:
    from psofed.testing import check_part

    with pytest.raises(AssertionError, match=r"compiled method and plain Python disagree: \w+ at iteration \d+"):
        check_part(awkward.Overflowing)
    assert why_python(awkward.Overflowing(num_byzantine=1)) is None


def with_part(part: Part) -> Scenario:
    if part.family == "pattern":
        return BASE.replace(selection=Selection(pattern=part))
    if part.family == "channel":
        return BASE.replace(channel=psofed.Links(up=part, down=part))
    return BASE.replace(data=Data(function=part)) if part.family == "function" else BASE.replace(**{part.family: part})


def make(awkward: ModuleType, name: str) -> Part:
    kind = getattr(awkward, name)
    return kind(num_byzantine=6, probability=1.0) if kind.family == "attack" else kind()


UNCOMPILED = (
    "Bookkeeper",
    "Ledger",
    "LedgerOfVectors",
    "Detective",
    "Archivist",
    "Diary",
    "Almanac",
    "Telegraph",
    "Postman",
    "Courier",
)


@pytest.mark.parametrize("name", UNCOMPILED)
def test_a_body_that_numba_cannot_compile_runs_as_python_and_is_named(
    as_literally: Callable, awkward: ModuleType, name: str
) -> None:
    part = make(awkward, name)
    result = as_literally(with_part(part), 5, 3, rtol=1e-8, atol=1e-13)
    assert why_python(part)
    assert any(part.kind in note for note in result.notes)


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("Bookkeeper", {"attack": ConstantBias(num_byzantine=6, probability=1.0)}),
        ("Ledger", {}),
        ("LedgerOfVectors", {}),
        ("Courier", {"algorithm": "online-fed"}),
    ],
)
def test_as_python_it_gives_the_numbers_of_the_compiled_twin(awkward: ModuleType, name: str, twin: dict) -> None:
    slow, fast = with_part(make(awkward, name)), BASE.replace(**twin)
    curves = [simulate(s, trials=5, keep_trials=True).trial_curves["server_msd"] for s in (slow, fast)]
    assert np.allclose(*curves, rtol=1e-12)


FAULTY = [
    ("Faulty", ArithmeticError, "the attack gave up"),
    ("FaultyRule", ValueError, "no agreement"),
    ("FaultyPattern", ValueError, "no mask"),
    ("FaultyAlgorithm", ValueError, "no letter"),
]


@pytest.mark.parametrize(("name", "kind", "message"), FAULTY)
@pytest.mark.parametrize("trials", [1, 5])
def test_an_error_in_a_body_ends_the_simulation_and_is_said(
    awkward: ModuleType, name: str, kind: type[Exception], message: str, trials: int
) -> None:
    """As it was raised, or as the cause of an error of psofed's that quotes it."""
    with pytest.raises((kind, PsofedError), match=message) as caught:
        simulate(with_part(make(awkward, name)), trials=trials)
    assert isinstance(caught.value, kind) or isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("name", ["TooFar", "TwiceTheSame", "BelowZero"])
@pytest.mark.parametrize("coordinated", [True, False])
def test_a_pattern_that_does_not_choose_different_entries_is_refused_by_name(
    awkward: ModuleType, name: str, coordinated: bool
) -> None:
    pattern = make(awkward, name)
    scenario = BASE.replace(selection=Selection(pattern=pattern, coordinated=coordinated))
    with pytest.raises(PsofedError, match=f'pattern "{pattern.kind}" .* 2 distinct entries between 0 and 3'):
        simulate(scenario, trials=2)


# --- what a class may be ----------------------------------------------------------------------------------------------


def test_a_part_of_the_name_of_a_built_in_one_is_refused_where_it_is_defined() -> None:
    with pytest.raises(PsofedError, match='the attack "sign-flip" already exists'):

        class SignFlip(psofed.Attack):
            """Of the same name."""

    with pytest.raises(PsofedError, match='the aggregation "krum" already exists'):

        class Other(psofed.Aggregation):
            """Of the same kind."""

            kind = "krum"

    assert find_part("attack", "sign-flip").__module__.startswith("psofed.")


def test_two_parts_of_one_name_are_refused_and_a_class_defined_anew_replaces_itself() -> None:
    def define(size: float) -> type[Part]:
        class Redefined(psofed.Attack):
            """As in a notebook, where a cell is run again."""

            step: float = psofed.option(size, text="how far")

            def corrupt(self, upload: Any) -> float:
                return upload.value + self.step

        return Redefined

    define(1.0)
    again = define(2.0)
    assert find_part("attack", "redefined") is again
    with pytest.raises(PsofedError, match=r'the attack "redefined" already exists .*Redefined'):

        class Another(psofed.Attack):
            """Of the same kind, from elsewhere."""

            kind = "redefined"


def test_options_of_ones_own_are_checked_by_their_range(own: ModuleType) -> None:
    with pytest.raises(InvalidValueError, match=r"attack.size must be .*at least 0"):
        own.Alternating(num_byzantine=1, size=-1)
    with pytest.raises(InvalidValueError, match=r"attack.size must be (a finite number of )?at least 0"):
        own.Alternating(num_byzantine=1, size="far")
    mapping = {**BASE.to_mapping(), "attack": {"kind": "alternating", "num_byzantine": 1, "size": 0.25}}
    assert Scenario.from_mapping(mapping).attack == own.Alternating(num_byzantine=1, size=0.25)


def test_a_plugin_that_is_not_there_or_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(PsofedError, match=r"^\S+nowhere.py: no such file"):
        psofed.load_plugin(tmp_path / "nowhere.py")
    with pytest.raises(PsofedError, match=r"no_such_module_of_parts.*cannot be imported"):
        psofed.load_plugin("no_such_module_of_parts")
    broken = tmp_path / "psofed_broken_plugin.py"
    broken.write_text("1 / 0")
    with pytest.raises(PsofedError, match=r"psofed_broken_plugin.py: ZeroDivisionError"):
        psofed.load_plugin(broken)
    (tmp_path / "json.py").write_text("")
    with pytest.raises(PsofedError, match=r"a module named json is already loaded"):
        psofed.load_plugin(tmp_path / "json.py")


def test_the_files_that_contributing_shows_are_parts(tmp_path: Path) -> None:
    from psofed.testing import check_part

    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    path = tmp_path / "psofed_test_contributing.py"
    path.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), encoding="utf-8")
    shown = psofed.load_plugin(path)
    assert check_part(shown.Swing).notes == ()
    result = simulate(BASE.replace(attack=shown.Swing(num_byzantine=2)), trials=2, metrics=[shown.WorstHonestMse()])
    assert result["worst_honest_mse"].mean > result.honest_mse.mean
    assert result.notes == ()


def test_a_plugin_loaded_twice_is_loaded_once(own: ModuleType) -> None:
    assert psofed.load_plugin(own.__file__) is own
