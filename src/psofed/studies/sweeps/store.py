"""Where finished cells are kept: one file each, whole or absent, checked when read."""

import contextlib
import hashlib
import io
import json
from pathlib import Path

import numpy as np

from psofed._version import __version__
from psofed.common.errors import PsofedError
from psofed.common.files import atomic_path
from psofed.studies.sweeps.cell import Cell, CellResult

_MAGIC = b"psofed cell 2\n"
_DIGEST_SIZE = hashlib.sha256().digest_size


class CellStore:
    """A folder of finished cells.

    A cell's file is named after its key, a digest of scenario, seed, trials, tail, version and the engine's
    sources. It is written beside its place and moved there, so a killed process leaves no half a cell; and it
    begins with a checksum of the rest, so a damaged one is noticed, counted and computed again.

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
            with atomic_path(probe) as temporary:
                temporary.write_bytes(_MAGIC)
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
        result = _decode(content, cell)
        if result is None:
            self.damaged.append(path)
        return result

    def save(self, cell: Cell, result: CellResult) -> None:
        """Keep a result."""
        with atomic_path(self.path(cell)) as temporary:
            temporary.write_bytes(_encode(cell, result))


def _encode(cell: Cell, result: CellResult) -> bytes:
    about = {"scenario": cell.identity, "seed": cell.seed, "tail": cell.tail, "version": __version__}
    buffer = io.BytesIO()
    text = np.array(json.dumps(about | result.about))
    np.savez(buffer, allow_pickle=False, about=text, **result.arrays)
    payload = buffer.getvalue()
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def _decode(content: bytes, cell: Cell) -> CellResult | None:
    """Return the result in a cell's file; None if it is damaged, forged or of another cell."""
    start = len(_MAGIC) + _DIGEST_SIZE
    payload = content[start:]
    if not content.startswith(_MAGIC) or hashlib.sha256(payload).digest() != content[len(_MAGIC) : start]:
        return None
    # The checksum protects against damage, not against a forged file, on which zipfile, NumPy and JSON may raise
    # anything. Such a cell is computed again, like a damaged one.
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            # Cells are not compressed, so an archive that unpacks to more than its own size is forged.
            if sum(member.file_size for member in arrays.zip.infolist()) > len(payload):
                return None
            about = json.loads(str(arrays["about"]))
            # A file may have been renamed to another cell's key.
            if about["scenario"] != json.loads(json.dumps(cell.identity)) or about["seed"] != cell.seed:
                return None
            result = CellResult.restored(about, arrays.__getitem__)
    except Exception:
        return None
    is_whole = result.trials == cell.trials or (cell.precision is not None and 0 < result.trials <= cell.trials)
    return result if is_whole else None
