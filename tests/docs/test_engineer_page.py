"""The engineer's path is true: its commands run, and print what the page shows."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "engineer.md"


def load_runner():
    spec = importlib.util.spec_from_file_location("run_shell_page", ROOT / "docs" / "run_shell_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_commands_of_the_page_print_what_it_shows(tmp_path) -> None:
    runner = load_runner()
    for block in runner.blocks(PAGE):
        for command, shown in runner.split_block(block):
            printed = runner.run_command(command, tmp_path)
            assert runner.agrees(shown, printed), f"{command}\nprints\n{printed}"
    for picture in re.findall(r"images/(\w+\.png)", PAGE.read_text(encoding="utf-8")):
        assert (tmp_path / picture).stat().st_size > 10_000
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    assert "no clear difference" in run_python(runner, example, tmp_path)


def run_python(runner, code: str, folder: Path) -> str:
    (folder / "example.py").write_text(code)
    return runner.run_command("python example.py", folder)


def test_left_out_lines_stand_for_any() -> None:
    runner = load_runner()
    assert runner.agrees("a\n…\nd\n", "a\nb\nc\nd\n")
    assert not runner.agrees("a\n…\nd\n", "a\nb\n")
