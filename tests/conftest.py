"""Fixtures, markers and scheduling for all tests."""

import gc
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# Before NumPy is loaded. Workers share the cores already; threads of the linear algebra, whose matrices here are small,
# would mostly wait for each other, at full load: the theory's tests take a third of the time without.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # where the package `reference` is found

from psofed import Aggregation, Attack, Scenario
from psofed.parts.attacks import Gaussian

hypothesis.settings.register_profile("psofed", deadline=None)  # how long an example takes depends on the load
hypothesis.settings.load_profile("psofed")


@pytest.fixture
def small_scenario() -> Scenario:
    """A scenario that takes milliseconds and leaves no part out."""
    return Scenario(
        num_clients=7,
        dimension=4,
        num_participants=3,
        num_shared=2,
        iterations=60,
        attack=Gaussian(num_byzantine=3, probability=0.5),
    )


ROOT = Path(__file__).parents[1]
PACKAGES = {path.parent.name for path in (ROOT / "src" / "psofed").glob("*/__init__.py")}
MARKERS = PACKAGES | {"docs"}

# In these folders `make test` runs some cases of tests with many (`_every`); `make test-all` runs all.
GRIDS = ("agreement", "conformance", "exactness")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--file-times`."""
    parser.addoption("--file-times", action="store_true", help="list the test files that take long")


def pytest_configure(config: pytest.Config) -> None:
    """Register one marker per package of psofed, so that `pytest -m theory` selects the tests of `theory/`."""
    for name in sorted(MARKERS):
        config.addinivalue_line("markers", f"{name}: tests of psofed's package {name}")


@cache
def unit_of_work(file: str) -> str:
    """Return what one worker runs: a file, or a folder whose conftest.py says `ONE_WORKER = True`."""
    folder = (ROOT / file).parent
    conftest = folder / "conftest.py"
    together = conftest.exists() and "\nONE_WORKER = True" in conftest.read_text(encoding="utf-8")
    return str(Path(file).parent) if together else file


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and leave most cases of thinned grids to `make test-all`.

    The order keeps `make test` short: no worker is left alone with a long file at the end.
    """
    seconds: Counter[str] = Counter()
    for file, item in {_file(item): item for item in items}.items():
        if (takes := item.get_closest_marker("takes")) is not None:
            seconds[unit_of_work(file)] += takes.args[0]
    items.sort(key=lambda item: -seconds[unit_of_work(_file(item))])
    cases = Counter(_function(item) for item in items)
    case: Counter[str] = Counter()
    for item in items:
        name = _function(item)
        case[name] += 1
        thinned = item.get_closest_marker("thinned")
        is_grid = Path(_file(item)).parent.name in GRIDS
        every = thinned.args[0] if thinned is not None else _every(cases[name]) if is_grid else 1
        if (case[name] - 1) % every:
            item.add_marker(pytest.mark.grid)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose file has no package marker."""
    if not MARKERS & {marker.name for marker in item.iter_markers()}:
        pytest.fail(f"add `pytestmark = pytest.mark.NAME` to {_file(item)}; NAME: {', '.join(sorted(MARKERS))}")


def _every(cases: int) -> int:
    """Return which share of a grid's cases runs: all of a few, half of a dozen, a fifth of many."""
    return 5 if cases >= 24 else 2 if cases >= 12 else 1


def _function(item: pytest.Item) -> str:
    return item.nodeid.split("[", 1)[0]


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With `--file-times`, list the files that take five seconds or more, for their markers `takes`."""
    if not config.getoption("file_times"):
        return
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds[report.nodeid.split("::", 1)[0]] += report.duration
    for file, taken in seconds.most_common():
        if taken >= 5.0:
            terminalreporter.write_line(f"{file}: pytest.mark.takes({taken:.0f})")


def pytest_collection_finish() -> None:
    """Look for garbage less often, and not among what was there before the first test; compiling makes much of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One worker more than there are cores, since tests with real processes and a browser wait much of the time."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run `--dist loadfile` in the units and the order from above (xdist would begin with the files of most tests)."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class InUnits(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of_work(nodeid.split("::", 1)[0])

    config.option.loadscopereorder = False
    return InUnits(config, log)


class Finished(NamedTuple):
    """What a command has left behind."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def psofed_command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """`psofed …` typed with these arguments, run within this process.

    A process of its own takes one to three seconds to import what it needs. It is for tests of what only a process
    shows: signals, limits of the system, what is imported, the exit of the interpreter.
    """
    from psofed.cli import main
    from psofed.common import notices

    def run(*arguments: object) -> Finished:
        out, errors = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
            patch.setattr(sys, "argv", ["psofed", *map(str, arguments)])
            patch.setattr(notices, "_LISTENERS", [])
            with pytest.raises(SystemExit) as ended:
                main()
        return Finished(int(ended.value.code or 0), out.getvalue(), errors.getvalue())

    return run


@pytest.fixture(scope="session")
def as_literally() -> Callable[..., Any]:
    """Simulate a scenario and compare all metrics of some trials, the last by default, with the literal form."""
    from psofed import simulate
    from psofed.simulation.watch_plan import make_plan
    from reference.literal import run_trial

    def check(
        scenario: Scenario, trials: int, seed: int, *looked_at: int, rtol: float = 1e-9, atol: float = 1e-15
    ) -> Any:
        result = simulate(scenario, trials=trials, seed=seed, keep_trials=True)
        for trial in looked_at or [trials - 1]:
            literal = run_trial(scenario, seed, trial, make_plan(scenario))
            for metric, curves in result.trial_curves.items():
                expected = getattr(literal, metric)
                np.testing.assert_allclose(curves[trial], expected, rtol, atol, equal_nan=False, err_msg=metric)
        return result

    return check


# The engine's hooks are called from here alone, so that a change of their signatures is a change of this file.


@pytest.fixture(scope="session")
def run_attack() -> Callable[..., np.ndarray]:
    """The compiled attack on models: uploads (P, D) with NaN where an entry is not shared."""
    from psofed.engine.state import Uploads
    from psofed.engine.streams import make_stream
    from reference.sides import attack_once

    def run(
        attack: Attack,
        uploads: np.ndarray,
        server: np.ndarray,
        *,
        target: np.ndarray,
        clients: Sequence[int],
        num_clients: int,
        iteration: int = 0,
        seed: int = 0,
    ) -> np.ndarray:
        entries = np.stack([np.flatnonzero(~np.isnan(row)) for row in uploads]).astype(np.int32)
        sent = np.take_along_axis(target[None] - uploads, entries.astype(np.int64), axis=1)
        messages = Uploads(1, *sent.shape, one_mask=False)
        messages.clients[0], messages.entries[0], messages.sent[0] = clients, entries, sent
        byzantine, stream = attack.byzantine_mask(num_clients), make_stream(seed, "attack", [0])
        attack_once(attack, byzantine, stream, target, iteration, server=server, messages=messages)
        received = np.full_like(uploads, np.nan)
        for p, row in enumerate(entries):
            received[p, row] = target[row] - messages.sent[0, p]
        return received

    return run


@pytest.fixture(scope="session")
def run_rule() -> Callable[..., np.ndarray]:
    """The compiled rule on models of several trials; returns the server's next models (D, trials)."""
    from psofed.engine.hooks import Hooks, why_python
    from psofed.engine.server import RuleSide, _combine
    from psofed.engine.state import Uploads, Work
    from psofed.engine.tables import KernelTable

    def run(
        rule: Aggregation,
        entries: np.ndarray,
        sent: np.ndarray,
        server: np.ndarray,
        *,
        target: np.ndarray | None = None,
        own_step: np.ndarray | None = None,
    ) -> np.ndarray:
        """`entries` and `sent` (P, M, trials): which entry each number is of; NaN for one that is not sent."""
        target = np.zeros(len(server)) if target is None else target
        errors = np.ascontiguousarray((target[entries] - sent).transpose(2, 0, 1))
        trials, count = errors.shape[:2]
        messages = Uploads(trials, count, errors.shape[2], one_mask=False)
        messages.entries, messages.sent = np.ascontiguousarray(entries.transpose(2, 0, 1), np.int32), errors
        error = np.ascontiguousarray((target[:, None] - server).T)
        work = Work(len(sent), sent.shape[1], len(server))
        side = RuleSide(rule, messages, error, target, 9, work, Hooks())
        assert why_python(rule) is None
        if own_step is not None and rule.has_root_data:  # for others it is scratch
            side.step[:] = -own_step.T
        _combine(KernelTable(side))
        return target[:, None] - error.T

    return run


@pytest.fixture(scope="module", autouse=True)
def only_built_in_parts() -> Iterator[None]:
    """Forget parts that a file of tests defined, so that they are not among those of the next."""
    from psofed.parts import registry

    plugins = os.environ.get(registry.PLUGINS_VARIABLE)
    yield
    for family, kind in list(registry._REGISTERED):
        if kind not in registry._built_in(family):
            del registry._REGISTERED[family, kind]
    if plugins is None:
        os.environ.pop(registry.PLUGINS_VARIABLE, None)
    else:
        os.environ[registry.PLUGINS_VARIABLE] = plugins
