"""Where finished cells are kept: one file each, whole or absent, checked when read."""

import contextlib
import hashlib
import json
from pathlib import Path

from psofed._version import __version__
from psofed.common.errors import PsofedError
from psofed.common.files import write_atomically
from psofed.studies.sweeps.cell import Cell, CellResult


class CellStore:
    """A folder of finished cells.

    A cell's file is named after its key, a digest of scenario, seed, trials, tail, version and the engine's
    sources. It is written beside its place and moved there, so a killed process leaves no half a cell. It is a
    line of JSON behind its SHA-256, so a damaged one is noticed, counted and computed again.

    Parameters
    ----------
    folder : path
        Made when the first cell is kept.

    Attributes
    ----------
    damaged : list of Path
        Files that were found damaged so far.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder: Path = Path(folder)
        self.damaged: list[Path] = []
        self._made: list[Path] = []
        for place in (self.folder, *self.folder.parents):
            if place.exists() and not place.is_dir():
                raise PsofedError(f"{place}: this is a file; the store needs a folder")

    def check_writable(self) -> None:
        """Refuse a folder in which nothing can be kept, before anything is computed for it."""
        self._made = [place for place in (self.folder, *self.folder.parents) if not place.exists()]
        probe = self.folder / "writable"
        try:
            write_atomically(probe, b"")
            probe.unlink(missing_ok=True)
        except PsofedError as error:
            raise PsofedError(str(error).replace(str(probe), str(self.folder))) from None

    def remove_if_empty(self) -> None:
        """Remove the folders made for cells of which none could be kept."""
        with contextlib.suppress(OSError):  # not empty
            for place in self._made:
                place.rmdir()

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell, whether it exists or not."""
        return self.folder / f"{cell.key}.cell"

    def load(self, cell: Cell) -> CellResult | None:
        """Return the kept result of a cell; None if there is none or it is damaged."""
        path = self.path(cell)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PsofedError(f"{path}: cannot be read ({error.strerror})") from None
        # The checksum protects against damage, not against a forged file, on which JSON and NumPy may raise anything.
        # Such a cell is computed again, like a damaged one, and so is one that was renamed to another cell's key.
        with contextlib.suppress(Exception):
            digest, text = content.split(b"\n", 1)
            plain = json.loads(text) if hashlib.sha256(text).hexdigest().encode() == digest else {}
            result = CellResult.from_plain(plain["result"])
            is_whole = result.trials == cell.trials or (cell.precision is not None and 0 < result.trials < cell.trials)
            if plain["cell"] == json.loads(json.dumps([cell.identity, cell.seed])) and is_whole:
                return result
        self.damaged.append(path)
        return None

    def save(self, cell: Cell, result: CellResult) -> None:
        """Keep a result."""
        about = {"cell": [cell.identity, cell.seed], "tail": cell.tail, "version": __version__}
        text = json.dumps(about | {"result": result.to_plain()}).encode()
        digest = hashlib.sha256(text).hexdigest().encode()
        write_atomically(self.path(cell), digest + b"\n" + text, mode=0o666)
