"""Checkpoints on a disk that fails, fills up or loses power at any single operation."""

import contextlib
import errno
from pathlib import Path
from random import Random

import numpy as np
import pytest
from simulated_disk import SimulatedDisk

from psofed.common.disk import use_disk
from psofed.common.errors import PsofedError
from psofed.common.files import write_atomically
from psofed.federation.client.state import ClientState, MemoryStore, NodeMemory
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.server.checkpoint import CheckpointStore, ServerState

pytestmark = [pytest.mark.federation, pytest.mark.common]

HOME = Path("/server/home")
PATH = HOME / "checkpoint.npz"


class KilledError(BaseException):
    """Raised in a process that is killed."""


def begin(session: str = "first") -> ServerState:
    arrays = {"0": np.zeros(2)}
    state = ServerState.begin(arrays, ModelLayout.of(arrays, ("*",), ()), {"seed": 0})
    state.session = session
    return state


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psofed.federation.server.checkpoint.ROUNDS_PER_FILE", 3)
    monkeypatch.setattr("psofed.federation.server.checkpoint.KEEP", 3)


def open_store() -> CheckpointStore:
    return CheckpointStore(PATH)


def run_rounds(store: CheckpointStore, state: ServerState, last: int, completed: list[int]) -> None:
    for number in range(state.round_number + 1, last + 1):
        state.round_number = number
        state.model = np.full(2, float(number))
        state.history.append({"round": number, "session": state.session})
        store.save(state)
        completed.append(number)


def check_whole(sessions: tuple[str, ...] = ("first",)) -> ServerState:
    """Return the newest checkpoint; it must be readable, with its own session's history and no gap in it."""
    store = open_store()
    state = store.load()
    assert state.session in sessions
    history = list(store.history.entries(state))
    assert history == state.history
    assert [entry["round"] for entry in history] == list(range(1, state.round_number + 1))
    assert {entry["session"] for entry in history} == {state.session}
    assert all(number <= state.round_number for number in store.rounds())
    assert state.round_number in store.rounds()
    assert state.model.tolist() == [float(state.round_number)] * 2
    return state


def operations(work) -> int:
    """Return how many operations `work` takes on a disk where nothing fails."""
    seen: list[str] = []
    with use_disk(disk := SimulatedDisk()):
        prepare()
        disk.before = lambda operation, path: seen.append(operation)
        work()
    return len(seen)


def prepare() -> None:
    run_rounds(open_store(), begin(), 6, [])


def roll_back() -> None:
    open_store().rollback(4)


def go_on() -> None:
    store = open_store()
    run_rounds(store, store.load(), 8, [])


def begin_again() -> None:
    run_rounds(open_store(), begin("second"), 2, [])


@pytest.mark.parametrize("accident", ["killed", "full disk", "power loss"])
@pytest.mark.parametrize("work", [roll_back, go_on, begin_again])
def test_no_accident_between_two_operations_loses_a_round(work, accident):
    for place in range(operations(work)):
        for seed in range(3 if accident == "power loss" else 1):
            disk = SimulatedDisk()
            left = [place]

            def strike(operation: str, path: Path, left=left) -> None:
                left[0] -= 1
                if left[0] >= 0:
                    return
                if accident != "full disk":
                    raise KilledError  # a dead process does not clean up
                if operation != "unlink":
                    raise OSError(errno.ENOSPC, "No space left on device")

            with use_disk(disk):
                prepare()
                disk.before = strike
                with contextlib.suppress(KilledError, PsofedError):
                    work()
                disk.before = lambda operation, path: None
                if accident == "power loss":
                    disk.lose_power(Path("/server"), Random(seed))
                state = check_whole(("first", "second") if work is begin_again else ("first",))
                if work is roll_back:
                    assert (state.round_number, state.epoch) in ((6, 0), (4, 1))
                elif state.session == "first":
                    assert state.round_number >= 6
                # And it continues from there, and leaves no stray files.
                store = open_store()
                run_rounds(store, store.load(), state.round_number + 1, [])
                check_whole((state.session,))
                assert not [name for name in disk.names(HOME) if "-part-" in name]
                assert len(store.history.paths()) == -(-(state.round_number + 1) // 3)


def test_a_completed_round_survives_a_power_loss_right_after_it():
    for seed in range(20):
        disk = SimulatedDisk()
        with use_disk(disk):
            completed: list[int] = []
            run_rounds(open_store(), begin(), 4, completed)
            disk.lose_power(Path("/server"), Random(seed))
            assert check_whole().round_number == 4


def test_a_round_that_was_never_completed_is_not_offered_for_rollback():
    disk = SimulatedDisk()
    with use_disk(disk):
        prepare()

        def strike(operation: str, path: Path) -> None:
            if operation == "link":
                raise KilledError

        disk.before = strike
        with pytest.raises(KilledError):
            go_on()
        disk.before = lambda operation, path: None
        store = open_store()
        assert disk.exists(store.folder / "00000007.npz")
        assert store.rounds()[-1] == 6
        with pytest.raises(PsofedError, match="--to-round 7"):
            store.rollback(7)


def test_a_rollback_first_makes_its_checkpoint_survive_a_power_loss():
    """A ServerApp was killed between naming the checkpoint and syncing its folder (seed 1010)."""
    for seed in range(20):
        disk, linked = SimulatedDisk(), []
        with use_disk(disk):
            prepare()

            def strike(operation: str, path: Path, linked: list = linked) -> None:
                if operation == "sync folder" and linked:
                    raise KilledError
                linked += [path] * (operation == "link")

            disk.before = strike
            with pytest.raises(KilledError):
                go_on()

            def strike_again(operation: str, path: Path) -> None:
                if operation == "create":
                    raise KilledError

            disk.before = strike_again
            assert open_store().rounds()[-1] == 7
            with pytest.raises(KilledError):
                open_store().rollback(7)
            disk.before = lambda operation, path: None
            disk.lose_power(Path("/server"), Random(seed))
            assert check_whole().round_number == 7


def test_a_second_rollback_to_before_the_first_has_an_epoch_of_its_own(monkeypatch):
    with use_disk(SimulatedDisk()):
        prepare()
        monkeypatch.setattr("psofed.federation.server.checkpoint.KEEP", 10)
        store = CheckpointStore(PATH)
        assert store.rollback(5).epoch == 1
        run_rounds(store, store.load(), 7, [])
        # The checkpoint of round 4 is older than the first rollback: clients of epoch 1 must not take it for theirs.
        assert store.rollback(4).epoch == 2


def test_what_was_written_atomically_survives_a_power_loss():
    for seed in range(20):
        disk = SimulatedDisk()
        with use_disk(disk):
            write_atomically(HOME / "deep" / "file", b"old")
            write_atomically(HOME / "deep" / "file", b"new")
            disk.lose_power(Path("/server"), Random(seed))
            assert disk.read(HOME / "deep" / "file") == b"new"


@pytest.mark.parametrize("seed", range(6))
def test_a_folder_made_by_a_killed_process_survives_a_later_power_loss(seed):
    disk, dead = SimulatedDisk(), []

    def die(operation: str, path: Path) -> None:
        if dead or (operation == "sync folder" and disk.exists(HOME)):
            dead.append(operation)
            raise KilledError

    with use_disk(disk):
        disk.before = die
        with pytest.raises(KilledError):
            write_atomically(HOME / "first", b"never there")
        disk.before = lambda operation, path: None
        run_rounds(open_store(), begin(), 2, [])
        disk.lose_power(Path("/server"), Random(seed))
        assert check_whole().round_number == 2


def test_a_node_keeps_what_it_has_just_written_when_its_clock_jumps_back():
    now = [10_000.0]
    with use_disk(SimulatedDisk(clock=lambda: now[0])):
        store, layout = MemoryStore(HOME), ModelLayout.of({"0": np.zeros(1)})
        state = ClientState(0, 1, layout, np.zeros(1), {}, 1, {})
        for session in "abcde":
            now[0] += 10.0 if session != "e" else -3600.0
            store.commit(NodeMemory(session, "pump"), {"": state})
        assert MemoryStore(HOME).recall("e", "pump").clients.keys() == {""}
