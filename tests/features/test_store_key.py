"""What a cell's key covers: all code that can change a result, psofed's and the user's, and nothing else."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import psofed
from psofed import Scenario, simulate
from psofed.common.fingerprint import source_digest
from psofed.parts.attacks import Gaussian
from psofed.studies.sweeps import Cell
from psofed.studies.sweeps import cell as cell_module
from psofed.studies.sweeps.cell import _BYSTANDERS

pytestmark = [pytest.mark.studies, pytest.mark.common]

PACKAGE = Path(psofed.__file__).parent
PACKAGES = sorted(p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name not in (*_BYSTANDERS, "__pycache__"))
FILES = [
    path.relative_to(PACKAGE)
    for package in PACKAGES
    for path in sorted((PACKAGE / package).rglob("*.py"))
    if not path.relative_to(PACKAGE).as_posix().startswith(tuple(f"{name}/" for name in _BYSTANDERS))
]
# Presentation: results hand themselves to it, and it gives back text and pictures, never a number that is kept.
SHOWS = {"render", "results/reports"}


digest = source_digest.__wrapped__  # files change here


def digest_of(tmp_path: Path, file: Path, text: str) -> str:
    """The digest of the file's package, if the file were all that stands in it."""
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text, encoding="utf-8")
    return digest(file.parts[0], root=tmp_path)


def test_a_change_deep_in_an_expression_changes_the_digest(tmp_path: Path) -> None:
    file = Path("engine/normals.py")
    text = (PACKAGE / file).read_text(encoding="utf-8")
    changed = text.replace("2.0**-53", "2.0**-52")
    assert changed != text
    assert digest_of(tmp_path, file, changed) != digest_of(tmp_path, file, text)


def test_a_file_that_is_renamed_added_or_removed_changes_the_digest(tmp_path: Path) -> None:
    file = Path("engine/normals.py")
    before = digest_of(tmp_path, file, "x = 1\n")
    with_another = digest_of(tmp_path, Path("engine/frames/more.py"), "")
    (tmp_path / file).rename(tmp_path / "engine/other.py")
    renamed = digest("engine", root=tmp_path)
    (tmp_path / "engine/other.py").unlink()
    assert len({before, with_another, renamed, digest("engine", root=tmp_path)}) == 4


def test_a_new_room_counts_until_it_is_said_to_be_a_bystander(tmp_path: Path) -> None:
    digests = []
    for room in ("engine", "plots", "weather"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "module.py").write_text("x = 1\n")
        digests.append(digest(without=("plots",), root=tmp_path))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_room_that_counts_imports_a_bystander(file: Path) -> None:
    """So what bystanders do cannot change a result; where a defence asks theory, theory is in the cell's key."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {f"{node.module}.{name.name}" for name in node.names}
    ours = {name.removeprefix("psofed.").replace(".", "/") for name in imported if name.startswith("psofed.")}
    found = {package for package in _BYSTANDERS for name in ours if f"{name}/".startswith(f"{package}/")}
    asks_theory = file.as_posix() == "simulation/watch_plan.py"
    assert found - SHOWS == ({"theory"} if asks_theory else set())
    assert not found & SHOWS or file.parts[0] in ("results", "scenario", "data")


def test_how_a_result_is_shown_does_not_count(tmp_path: Path) -> None:
    for name in ("results/simulation.py", "results/reports/simulation.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    shown = {"without": ("results/reports",), "root": tmp_path}
    before = digest("results", **shown)
    (tmp_path / "results/reports/simulation.py").write_text("x = 2\n")
    assert digest("results", **shown) == before
    (tmp_path / "results/simulation.py").write_text("x = 2\n")
    assert digest("results", **shown) != before


def test_theory_is_in_the_key_of_a_cell_with_a_defence(monkeypatch: pytest.MonkeyPatch) -> None:
    defended = SCENARIO.replace(defence="cusum")
    before = [Cell(scenario, 3).key for scenario in (SCENARIO, defended)]
    known = cell_module.source_digest
    monkeypatch.setattr(
        cell_module,
        "source_digest",
        lambda *packages, **more: "new" if packages == ("theory",) else known(*packages, **more),
    )
    after = [Cell(scenario, 3).key for scenario in (SCENARIO, defended)]
    assert before[0] == after[0]
    assert before[1] != after[1]


SCENARIO = Scenario(num_clients=6, dimension=3, iterations=4, attack=Gaussian(num_byzantine=2), aggregation="krum")


def test_the_key_of_a_cell_is_the_same_in_another_process() -> None:
    code = (
        "from psofed import Scenario\nfrom psofed.studies.sweeps import Cell\n"
        f"print(Cell(Scenario.from_toml({SCENARIO.to_toml()!r}), 3).key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == Cell(SCENARIO, 3).key


def test_the_key_of_a_cell_is_the_same_after_its_parts_were_compiled() -> None:
    before = Cell(SCENARIO, 3).key
    simulate(SCENARIO, trials=1)
    assert Cell(SCENARIO, 3).key == before


OWN = '''
import math

FACTOR = 2.0
TABLE = (1.0, 2.0)


def helper(value):
    return FACTOR * value


class _Base(Attack):
    kind = "store-key-base"

    def far(self):
        return 1.0


class StoreKey(_Base):
    """Words."""

    kind = "store-key"
    knows = "upload"
    size: float = option(1.0, low=0.0, text="how far")

    def corrupt(self, upload):
        """Words."""
        # A remark.
        return upload.value + self.size * helper(math.sqrt(2.0)) + TABLE[1] + 1.0
'''


def key_of(text: str) -> str:
    """The key of a cell whose attack is the class StoreKey of a text."""
    space = {"__name__": "psofed_test_store_key", "Attack": psofed.Attack, "option": psofed.option}
    exec(text, space)
    attack = space["StoreKey"](num_byzantine=1)
    return Cell(Scenario(num_clients=5, dimension=2, attack=attack), trials=2).key


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1.0\n", "+ 1.5\n"),
        ("upload.value +", "upload.value -"),
        ("math.sqrt(2.0)", "math.exp(2.0)"),
        ("return FACTOR * value", "return FACTOR + value"),
        ("FACTOR = 2.0", "FACTOR = 3.0"),
        ("TABLE = (1.0, 2.0)", "TABLE = (1.0, 2.5)"),
        ("option(1.0, low", "option(2.0, low"),
        ('knows = "upload"', 'knows = "server"'),
        ("return 1.0", "return 2.0"),
    ],
)
def test_a_change_of_the_users_code_changes_the_key(old: str, new: str) -> None:
    assert old in OWN
    assert key_of(OWN.replace(old, new)) != key_of(OWN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('    """Words."""\n\n', '    """Other words."""\n\n'),
        ("# A remark.", "# Another."),
        ('        """Words."""\n', ""),
    ],
)
def test_a_change_of_the_users_words_does_not(old: str, new: str) -> None:
    assert old in OWN
    assert key_of(OWN.replace(old, new)) == key_of(OWN)


def test_an_array_beside_the_users_code_counts_with_all_its_numbers() -> None:
    """NumPy prints a long array without its middle."""
    text = OWN.replace("import math\n", "import math\n\nimport numpy as np\n")
    text = text.replace("TABLE = (1.0, 2.0)", "TABLE = np.zeros(5000)")
    changed = text.replace("np.zeros(5000)", "np.where(np.arange(5000) == 2500, 1.0, 0.0)")
    assert key_of(changed) != key_of(text)


def test_a_field_of_another_module_counts() -> None:
    """A number read from a module of the user's own, by its name in that module."""
    import types

    space, keys = types.ModuleType("psofed_test_store_key_settings"), []
    for value in (1.0, 2.0):
        space.SIZE = value
        sys.modules[space.__name__] = space
        text = OWN.replace("import math\n", f"import math\n\nimport {space.__name__} as settings\n")
        keys.append(key_of(text.replace("+ 1.0\n", "+ settings.SIZE\n")))
    del sys.modules[space.__name__]
    assert keys[0] != keys[1]
