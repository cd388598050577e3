"""Every help page, and the messages for typical mistakes, as files: `python tests/commands/fixtures.py` writes them.

Read the difference before you commit it: would a stranger understand each one immediately?
"""

import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
HELP = HERE / "help"
MISTAKES = HERE / "mistakes.txt"

_WIDTH = "100"
_ROWS = "\n".join(f"{['north', 'south'][n % 2]},{n % 7},{n % 5},{(n % 7) + n % 3}" for n in range(100))

FILES = {
    "scenario.toml": "num_clients = 50\ndimension = 5\niterations = 100\n\n[attack]\nnum_byzantine = 15\n",
    "broken.toml": "num_clients = 50\ndimension = \n",
    "typed.toml": 'num_clients = "fifty"\ndimension = 5\n',
    "fraction.toml": "num_clients = 50\ndimension = 2.5\n",
    "misspelt.toml": "num_clients = 50\ndimension = 5\nstepsise = 0.1\n",
    "short.toml": "dimension = 5\n",
    "shared.toml": "num_clients = 50\ndimension = 5\nnum_shared = 9\n",
    "kind.toml": 'num_clients = 50\ndimension = 5\n\n[attack]\nkind = "gausian"\nnum_byzantine = 5\n',
    "foreign.toml": 'num_clients = 9\ndimension = 5\n\n[attack]\nkind = "sign-flip"\nclients = [1]\nvariance = 1.0\n',
    "table.toml": "num_clients = 50\ndimension = 5\nattack = 5\n",
    "plugin.toml": 'plugins = ["my_parts"]\nnum_clients = 50\ndimension = 5\n\n[attack]\nkind = "mine"\n',
    "custom.py": "this is not Python\n",
    "grid.toml": "[base]\nnum_clients = 50\ndimension = 5\n\n[grid]\nstepsise = [0.1, 0.2]\n",
    "full_grid.toml": "[base]\nnum_clients = 9\ndimension = 5\n\n[grid]\nnum_shared = [1, 5]\n",
    "empty_grid.toml": "[base]\nnum_clients = 50\ndimension = 5\n",
    "readings.csv": f"station,wind,rain,output\n{_ROWS}\n",
    "number_grid.toml": "[base]\nnum_clients = 50\ndimension = 5\n\n[grid]\nstepsize = 0.1\n",
    "joint_grid.toml": '[base]\nnum_clients = 9\ndimension = 5\n\n[grid]\n"stepsize, iterations" = [0.1, 0.2]\n',
    "attack_grid.toml": '[base]\nnum_clients = 9\ndimension = 5\n\n[grid]\nattack = [{kind = "sign-flip"}]\n',
    "ragged.csv": "station,wind,output\nnorth;1;2\n",
    "columns.toml": '[data]\nfile = "readings.csv"\n',
    "words.csv": "station,wind,output\n" + "north,calm,1\n" * 50,
    "headless.csv": "",
    "notes.txt": "not a result\n",
    "tables.toml": "num_clients = 50\ndimension = 5\n\n[attacks]\nnum_byzantine = 5\n",
    "rule.toml": 'num_clients = 9\ndimension = 5\n\n[aggregation]\nkind = "trimmed-mean"\ntrim = 1\n',
    "range.toml": "num_clients = 9\ndimension = 5\n\n[data]\nnoise_variance = {uniform = [0.2, 0.1]}\n",
    "list.toml": "num_clients = 9\ndimension = 5\nstepsize = [0.1, 0.2]\n",
    "seed.toml": "num_clients = 9\ndimension = 5\nseed = 3\n",
    "channel.toml": 'num_clients = 9\ndimension = 5\n\n[channel]\nkind = "noisy"\n',
    "twice_grid.toml": "[base]\nnum_clients = 9\ndimension = 5\n\n[grid]\nstepsize = [0.1]\n"
    '"stepsize, num_shared" = [[0.1, 1]]\n',
    "empty.toml": "",
    "modules.toml": 'plugins = "my_parts"\nnum_clients = 50\ndimension = 5\n',
    "full.toml": "num_clients = 50\ndimension = 5\nnum_shared = 5\n",
    "commas.csv": "station,wind,output\nnorth,1,5,2,5\n",
    "comment.csv": "# logger 7\nstation,wind,output\nnorth,1,2\n",
    "numbers.csv": "1,2,2\n3,4,5\n",
    "units.csv": "station,wind,output\n" + "north,3 m/s,1\n" * 50,
}

COMMANDS = """
psofed simulat scenario.toml
psofed simulate
psofed simulate missing.toml
psofed simulate broken.toml
psofed simulate typed.toml
psofed simulate fraction.toml
psofed simulate misspelt.toml
psofed simulate short.toml
psofed simulate grid.toml
psofed simulate shared.toml
psofed simulate kind.toml
psofed simulate foreign.toml
psofed simulate table.toml
psofed simulate plugin.toml
psofed simulate tables.toml
psofed simulate rule.toml
psofed simulate range.toml
psofed simulate list.toml
psofed simulate seed.toml
psofed simulate channel.toml
psofed simulate modules.toml
psofed simulate scenario.toml --plugin missing.py
psofed simulate scenario.toml --plugin custom.py
psofed simulate scenario.toml other.toml
psofed simulate scenario.toml --trails 5
psofed simulate scenario.toml --trials
psofed simulate scenario.toml --trials 0
psofed simulate scenario.toml --trials many
psofed simulate scenario.toml --threads -1
psofed simulate scenario.toml --seed -1
psofed simulate scenario.toml --tail 200
psofed simulate scenario.toml --set stepsize
psofed simulate scenario.toml --set stepsize=fast
psofed simulate scenario.toml --set stepsise=0.1
psofed simulate scenario.toml --set num_shared=9
psofed simulate scenario.toml --set attack.probability=1.2
psofed simulate scenario.toml --set attack.num_byzantine=60
psofed simulate scenario.toml --set aggregation=medain
psofed simulate scenario.toml --set attack=gausian
psofed simulate scenario.toml --set aggregation=trimmed-mean --set aggregation.trim=1
psofed simulate scenario.toml --set attack.num_byzantine=3 --set attack.clients=[1]
psofed simulate scenario.toml --set stepsize=0.1 --set stepsize=0.2
psofed simulate scenario.toml --set trials=3
psofed simulate scenario.toml --stepsize 0.1
psofed simulate scenario.toml --versus scenario.toml --set num_shared=2
psofed simulate scenario.toml --plot notes.txt/curve.png
psofed simulate scenario.toml --out result.json
psofed simulate scenario.toml --plot curve.gif
psofed simulate scenario.toml --versus full.toml --out both.nc
psofed simulate --features wind
psofed simulate --data missing.csv --client-column station --target-column output
psofed simulate --data headless.csv --client-column station --target-column output
psofed simulate --data readings.csv
psofed simulate --data readings.csv --client-column station
psofed simulate --data readings.csv --client-column town --target-column output
psofed simulate --data readings.csv --client-column station --target-column output --features wnd
psofed simulate --data readings.csv --client-column station --target-column output --leave-out nort
psofed simulate --data readings.csv --client-column station --target-column output --set num_clients=9
psofed simulate --data words.csv --client-column station --target-column output --features wind
psofed simulate --data readings.csv --client-column Station --target-column output
psofed simulate --data readings.csv --client-column station --target-column output --leave-out north,south
psofed simulate --data readings.csv --client-column station --target-column output --warmup 100
psofed simulate --data ragged.csv --client-column station --target-column output
psofed simulate --data scenario.toml --client-column station --target-column output
psofed simulate --data commas.csv --client-column station --target-column output
psofed simulate --data comment.csv --client-column station --target-column output
psofed simulate --data numbers.csv --client-column station --target-column output
psofed simulate --data units.csv --client-column station --target-column output
psofed simulate readings.csv
psofed simulate columns.toml
psofed predict
psofed predict scenario.toml --theory papr
psofed predict scenario.toml --small-stepsize
psofed predict scenario.toml --set attack.kind=min-max
psofed tune scenario.toml --shared 1,9
psofed tune scenario.toml --shared all
psofed tune scenario.toml --metric error
psofed compare scenario.toml --trials 1
psofed sweep grid.toml
psofed sweep empty_grid.toml
psofed sweep scenario.toml
psofed sweep missing.toml
psofed sweep full_grid.toml --trials 0
psofed sweep full_grid.toml --threads 0
psofed sweep full_grid.toml --plot picture.txt
psofed sweep number_grid.toml
psofed sweep joint_grid.toml
psofed sweep attack_grid.toml
psofed sweep twice_grid.toml
psofed sweep twice_grid.toml --set stepsize=0.1
psofed sweep empty.toml
psofed sweep readings.csv
psofed plot notes.txt picture.svg
psofed plot notes.txt picture.gif
psofed advise
psofed advise --data readings.csv --client-column station --target-column output --byzantine 0.7
psofed advise --data readings.csv --client-column station --target-column output --set stepsize=0.1
psofed explore --set stepsize=0.1
psofed explore scenario.toml --port 99999
psofed reproduce fig10
psofed reproduce figure2
psofed reproduce fig2 --trials 1
psofed reproduce fig2 --set num_shared=2
psofed federation run
psofed federation server --metrics-host 0.0.0.0
psofed federation client --broker mqtts://nowhere --certificate north.pem --features a
psofed federation client --broker mqtts://nowhere --certificate north.pem --attack sign-flip
psofed federation client --broker mqtts://nowhere --certificate north.pem --client north
psofed federation client --broker nowhere:port --certificate north.pem
psofed federation client --broker http://nowhere:8883 --certificate north.pem
psofed federation client --broker mqtts://nowhere --certificate north.pem --data scenario.toml
psofed federation stop
psofed federation run scenario.toml
psofed federation run readings.csv
psofed federation client
"""


def help_pages() -> dict[str, str]:
    """Return the help of every command by the file that keeps it."""
    import typer

    from psofed.cli import app

    pages = {}
    for words in _paths([], typer.main.get_command(app)):
        name = "-".join(["psofed", *words])
        pages[f"{name}.txt"] = run([*words, "--help"])[1]
    return pages


def mistakes() -> str:
    """Return the messages for all mistakes, each below its command."""
    lines = []
    with TemporaryDirectory() as folder, chdir(folder):
        for name, text in FILES.items():
            Path(name).write_text(text, encoding="utf-8")
        for line in COMMANDS.strip().splitlines():
            code, out, errors = _run(shlex.split(line)[1:])
            assert code == 2, (line, code, out, errors)
            lines += [f"$ {line}", errors.replace(folder, "FOLDER").rstrip("\n"), ""]
    return "\n".join(lines)


def run(arguments: list[str]) -> tuple[int, str]:
    """Run a command here; return its exit code and what it printed."""
    code, out, _ = _run(arguments)
    return code, out


def _run(arguments: list[str]) -> tuple[int, str, str]:
    from psofed.cli import main

    before = sys.argv, os.environ.get("COLUMNS"), os.environ.get("TERMINAL_WIDTH")
    sys.argv = ["psofed", *arguments]
    os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = _WIDTH
    out, errors = io.StringIO(), io.StringIO()
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.argv = before[0]
        for name, value in zip(("COLUMNS", "TERMINAL_WIDTH"), before[1:], strict=True):
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")
    return code, f"{text}\n", errors.getvalue()


def _paths(path: list[str], command: Any) -> Iterator[list[str]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from _paths([*path, name], child)


if __name__ == "__main__":
    HELP.mkdir(exist_ok=True)
    for file, text in help_pages().items():
        (HELP / file).write_text(text, encoding="utf-8")
    MISTAKES.write_text(mistakes(), encoding="utf-8")
