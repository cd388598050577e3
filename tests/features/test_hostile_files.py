"""Damaged and forged files: refused in one line, or computed again; no wrong numbers, tracebacks or full memory."""

import contextlib
import hashlib
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import psofed
from psofed.common.errors import PsofedError
from psofed.results import SimulationResult
from psofed.results.netcdf import open_dataset, read_back
from psofed.scenario import Scenario
from psofed.scenario.file import read_scenario
from psofed.studies.sweeps import Axis, Cell, CellStore, Grid, compute_cell, run_sweep
from psofed.studies.sweeps.grid import read_grid
from psofed.studies.sweeps.result import SWEEP_TITLE, sweep_from_dataset

pytestmark = pytest.mark.results

FLEET = Scenario(
    num_clients=6, dimension=3, iterations=40, attack=psofed.attacks.Gaussian(num_byzantine=2, probability=0.5)
)
FLIPS = 60  # of each file; they are spread over all of it


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved simulation."""
    file = tmp_path_factory.mktemp("results") / "result.nc"
    psofed.simulate(FLEET, trials=4).save(file)
    return file


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved sweep."""
    folder = tmp_path_factory.mktemp("sweep")
    run_sweep(Grid(FLEET, (Axis(("num_shared",), ((1,), (3,))),), trials=3)).save(folder)
    return folder / "sweep.nc"


def flipped(content: bytes, number: int, of: int = FLIPS) -> bytes:
    """Return the content with one bit changed, the first to the last place as `number` goes up."""
    place = number * (len(content) - 1) // (of - 1)
    changed = bytearray(content)
    changed[place] ^= 1 << (number % 8)
    return bytes(changed)


def refusal(file: Path) -> str:
    with pytest.raises(PsofedError) as refused:
        psofed.load_result(file)
    text = str(refused.value)
    assert "\n" not in text
    assert text.startswith(f"{file}: ")
    return text


def sign(content: bytes) -> bytes:
    """Return a file with a valid checksum, as a forger would write it."""
    return content + b"\npsofed sha256 " + hashlib.sha256(content).hexdigest().encode() + b"\n"


def test_every_flipped_bit_of_a_result_is_noticed(simulation: Path, sweep: Path, tmp_path: Path) -> None:
    for original in (simulation, sweep):
        content = original.read_bytes()
        for number in range(FLIPS):
            file = tmp_path / "flipped.nc"
            file.write_bytes(flipped(content, number))
            assert re.search("damaged|cut short", refusal(file))


@pytest.mark.parametrize("length", [0, 10, -1, -50, -200])
def test_a_result_that_was_cut_short_is_refused(simulation: Path, tmp_path: Path, length: int) -> None:
    file = tmp_path / "short.nc"
    file.write_bytes(simulation.read_bytes()[:length])
    assert "cut short" in refusal(file)


def test_other_programs_read_a_result_in_spite_of_its_checksum(simulation: Path) -> None:
    import xarray

    with xarray.open_dataset(simulation) as data:
        assert data["network_mse"].size == 4


def test_flipped_bits_behind_a_forged_checksum_raise_one_line_or_nothing(
    simulation: Path, sweep: Path, tmp_path: Path
) -> None:
    """A forger can change numbers; whatever HDF5, xarray and JSON make of other changes must end in one line.

    In a process of its own, because HDF5 may crash on a forged file. It may not while this list is read.
    """
    code = f"""
import sys, pathlib, hashlib, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_hostile_files import flipped, sign
import psofed
from psofed.common.errors import PsofedError
for name in sys.argv[1:]:
    content = pathlib.Path(name).read_bytes()[:-79]
    for number in range(25):
        file = pathlib.Path({str(tmp_path)!r}) / "forged.nc"
        file.write_bytes(sign(flipped(content, number, 25)))
        try:
            psofed.load_result(file)
        except PsofedError as error:
            assert "\\n" not in str(error), str(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(simulation), str(sweep)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_variable_larger_than_its_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    import h5netcdf

    file, plain = tmp_path / "sparse.nc", tmp_path / "plain.nc"
    with h5netcdf.File(plain, "w") as made:
        made.dimensions = {"trial": 10**10, "other": 4}
        made.create_variable("network_mse", ("trial", "other"), "f8", chunks=(1000, 4))
    file.write_bytes(sign(plain.read_bytes()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "declares 320 GB of numbers" in refusal(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_a_file_larger_than_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "large.nc"
    with file.open("wb") as made:
        made.truncate(1 << 42)  # takes no room on disk
    assert "GB of memory" in refusal(file)


def forged(data: Any) -> str:
    make = sweep_from_dataset if data.attrs["title"] == SWEEP_TITLE else SimulationResult.from_dataset
    with pytest.raises(PsofedError, match=r"^forged\.nc: .*$") as refused:
        read_back("forged.nc", data, make)
    return str(refused.value)


def test_a_forged_attribute_of_a_result_is_one_line(simulation: Path) -> None:
    data = open_dataset(simulation)
    for name in ("scenario", "seed", "tail", "bin_width", "details", "notes", "seconds"):
        for value in ("", "[", "[" * 5000, "nonsense", -1.5, "null", 0):
            with contextlib.suppress(PsofedError):
                repr(read_back("result.nc", data.assign_attrs({name: value}), SimulationResult.from_dataset))


def test_forged_shapes_of_a_result_are_refused(simulation: Path, sweep: Path) -> None:
    data = open_dataset(simulation)
    assert "client is 2, expected 6" in forged(data.isel(client=[0, 1]))
    assert "iteration is 1, expected 40" in forged(data.isel(iteration=[0]))
    assert "not a psofed result (KeyError" in forged(data.drop_vars("network_mse"))
    assert "network_mse has dimensions" in forged(data.assign(network_mse=data["network_mse_curve"]))
    assert "diverged_at has dimensions" in forged(data.assign(diverged_at=data["network_mse"]))
    data = open_dataset(sweep)
    right = json.loads(data.attrs["sweep"])
    assert "has 1 points, expected 2" in forged(
        data.assign_attrs(sweep=json.dumps({**right, "cells": right["cells"][:1]}))
    )
    for plain in ([], {"grid": right["grid"]}, {**right, "grid": {}}, {**right, "cells": [{}, {}]}):
        assert "not a psofed result" in forged(data.assign_attrs(sweep=json.dumps(plain)))
    del data.attrs["sweep"]
    assert "run the sweep again" in forged(data)


CELL = Cell(FLEET, trials=3)


def test_a_forged_cell_is_computed_again(tmp_path: Path) -> None:
    """Whatever is inside a cell whose checksum is right, it is a result of that cell, or it is damaged."""
    store = CellStore(tmp_path)
    store.save(CELL, compute_cell(CELL))
    path = store.path(CELL)
    right = json.loads(path.read_bytes().partition(b"\n")[2])

    def load(content: bytes) -> Any:
        path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        return store.load(CELL)

    def packed(**changes: Any) -> bytes:
        return json.dumps({**right, "result": {**right["result"], **changes}}).encode()

    assert load(packed()) is not None
    levels = right["result"]["steady_state"]
    wrong = [
        b"", b"[", b"[" * 10**5, b"null", b"{}", json.dumps({**right, "cell": [right["cell"][0], 7]}).encode(),
        packed(seconds="x"), packed(diverged_at=[]), packed(diverged_at=[0.5, 0.5, 0.5]), packed(defence={"x": []}),
        packed(steady_state={}), packed(steady_state={**levels, "network_mse": [0.0] * 4}),
        packed(steady_state={**levels, "network_mse": ["a", "b", "c"]}),
        packed(steady_state={**levels, "network_mse": [[0.0] * 10**4] * 3}),
    ]  # fmt: skip
    for number, content in enumerate(wrong):
        assert load(content) is None, number
    assert len(store.damaged) == len(wrong)
    payload = packed()
    for number in range(FLIPS):
        load(flipped(payload, number))  # a forger may change numbers; nothing else is raised


def test_a_damaged_archive_of_the_federation_is_one_line(tmp_path: Path) -> None:
    from psofed.federation.protocol.archive import read_archive, to_archive

    file = tmp_path / "checkpoint.npz"
    right = np.arange(20.0)
    content = to_archive({"checkpoint": 1, "model": right})
    for number in range(4 * FLIPS):
        file.write_bytes(flipped(content, number, 4 * FLIPS))
        with contextlib.suppress(PsofedError):
            assert read_archive(file, "checkpoint", 1)["model"].tobytes() == right.tobytes()


HOSTILE_TOML = {
    "deep arrays": "a = " + "[" * 100_000,
    "deep closed arrays": "a = " + "[" * 300 + "]" * 300,
    "deep tables": "a = " + "{a = " * 50_000,
    "long integer": "num_clients = " + "9" * 5_001,
    "long hexadecimal": "num_clients = 0x" + "f" * 200_000,
    "dotted key": ".".join(["a"] * 100_000) + " = 1",
    "quoted dotted key": ".".join(['"a"'] * 50_000) + " = 1",
    "dotted header": "[" + " . ".join(["a"] * 100_000) + "]",
    "inline dotted key": "x = {y = 1, " + ".".join(["a"] * 100_000) + " = 1}",
    "long key": "a" * 200_000 + " = 1",
    "not a date": "num_clients = 2026-99-99",
    "control character": "num_clients = \x00",
}


@pytest.mark.parametrize("name", HOSTILE_TOML)
def test_hostile_toml_is_refused_at_once_in_one_line(name: str, tmp_path: Path) -> None:
    file = tmp_path / "hostile.toml"
    file.write_text(HOSTILE_TOML[name], encoding="utf-8")
    started = time.process_time()
    for read in (read_scenario, read_grid):
        with pytest.raises(PsofedError) as refused:
            read(file)
        text = str(refused.value)
        assert text.startswith(f"{file}: not valid TOML: ")
        assert "\n" not in text
        assert len(text) < 400 + len(str(file))
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("command", ["simulate", "sweep"])
def test_hostile_toml_ends_a_command_with_exit_code_2(command: str, tmp_path: Path, psofed_command: Any) -> None:
    file = tmp_path / "hostile.toml"
    file.write_text(HOSTILE_TOML["dotted key"], encoding="utf-8")
    out = ["--out", tmp_path / "out"] if command == "sweep" else []
    done = psofed_command(command, file, *out)
    assert (done.returncode, done.stderr) == (
        2,
        f"psofed: {file}: not valid TOML: nested too deeply (limit: 32 levels)\n",
    )


def test_a_toml_file_without_end_is_refused() -> None:
    with pytest.raises(PsofedError, match=r"/dev/zero: not valid TOML: too long \(limit: 64 MiB\)"):
        read_scenario("/dev/zero")


def test_a_clients_name_is_no_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    """As `advise --out a.csv` writes it, from a table in which somebody chose the name."""
    rng = np.random.default_rng(1)
    lines = ["id,x,y"]
    for name in ("=cmd|' /C calc'!A0", "+1+1", "-5", "@SUM(A1)", "plain"):
        lines += [f'"{name}",{x:.4f},{2 * x + e:.4f}' for x, e in rng.normal(size=(60, 2))]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = psofed.read_data(tmp_path / "table.csv", "id", "y")
    psofed.advise(data).save(tmp_path / "advice.csv")
    names = {line.partition(",")[0] for line in (tmp_path / "advice.csv").read_text("utf-8").splitlines()[1:]}
    assert names == {"'=cmd|' /C calc'!A0", "'+1+1", "-5", "'@SUM(A1)", "plain"}


def test_all_tables_are_written_by_the_one_writer_that_neutralises_formulas() -> None:
    source = Path(psofed.__file__).parent
    writers = [
        str(path.relative_to(source)) for path in source.rglob("*.py")
        if re.search(r"csv\.writer|csv\.DictWriter|\.to_csv\(", path.read_text(encoding="utf-8"))
    ]  # fmt: skip
    assert writers == ["common/csv_text.py"]
    readers = [path for path in source.rglob("*.py") if "tomllib.load" in path.read_text(encoding="utf-8")]
    assert [path.name for path in readers] == ["toml.py"]
