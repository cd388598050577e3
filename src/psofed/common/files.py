"""Files written whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psofed.common.errors import PsofedError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, and move it there when the block ends well.

    A reader sees the old file or the new one, never a part; a crash leaves the old one. The folder is made
    if it is missing. A full disk or a folder that cannot be written is a :class:`PsofedError` that names the file, and
    leaves nothing behind, not even folders made for it.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "result.txt"
    >>> with atomic_path(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    target = Path(path)
    made: list[Path] = []
    try:
        made = _make_folders(target.parent)
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        _remove_folders(made)
        raise PsofedError(f"{target}: cannot be written ({reason_of(error)})") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise PsofedError(f"{target}: cannot be written ({reason_of(error)})") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not target.exists():
            _remove_folders(made)


def reason_of(error: OSError) -> str:
    """Return in a few words why the system refused."""
    if error.errno is not None:
        return os.strerror(error.errno)
    return str(error).partition("\n")[0]


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it; return what was made, the deepest first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    made: list[Path] = []
    try:
        for place in reversed(missing):
            place.mkdir(exist_ok=True)
            made.insert(0, place)
    except OSError:
        _remove_folders(made)
        raise
    return made


def _remove_folders(made: list[Path]) -> None:
    with contextlib.suppress(OSError):  # not empty: somebody else uses it by now
        for place in made:
            place.rmdir()


def _umask() -> int:
    # The process's mask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
