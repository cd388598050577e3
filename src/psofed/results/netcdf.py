"""NetCDF files of results: written whole, with a checksum, and read only if undamaged.

A file is what xarray writes, followed by one line with the SHA-256 of everything before it. HDF5 ignores bytes behind
its own, so any NetCDF-4 reader opens the file. The checksum is verified before HDF5 sees the file, because HDF5 itself
may return other numbers, or crash, when a bit is wrong. It protects against damage, not against forgery: whoever
writes a file can also write its checksum. So sizes are checked before anything is read into memory.
"""

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.files import write_atomically

if TYPE_CHECKING:
    import xarray

_MARK = b"\npsofed sha256 "
_CHECKSUM_LENGTH = 2 * hashlib.sha256().digest_size + 1


def check_netcdf_name(path: str | Path) -> None:
    """Refuse a file name of another kind, before any work is done."""
    if Path(path).suffix.lower() != ".nc":
        raise InvalidValueError("out", str(path), "a name ending in .nc (NetCDF)")


def save_dataset(data: "xarray.Dataset", path: str | Path) -> None:
    """Write a data set as NetCDF with a checksum, whole or not at all."""
    check_netcdf_name(path)
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    # In memory first: on a full disk HDF5 leaves its file open, and the process crashes when it ends. Not through
    # Dataset.to_netcdf, which asks an open Dask client for a lock that the scheduler does not know.
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        data.dump_to_store(H5NetCDFStore(file))
    content = buffer.getvalue()
    write_atomically(Path(path), content + _MARK + _checksum(content), mode=0o666)


def open_dataset(path: str | Path) -> "xarray.Dataset":
    """Read a NetCDF file that psofed wrote into memory.

    Raises
    ------
    PsofedError
        If the file is missing, damaged, of another kind, or larger than the machine's memory.
    """
    file = Path(path)
    if file.is_dir():
        raise PsofedError(f"{path}: is a folder, not a result")
    try:
        content = _read(file)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except OSError as error:
        raise PsofedError(f"{path}: cannot be read ({error.strerror})") from None
    data: xarray.Dataset = read_back(path, content, _load)
    return data


def read_back(path: str | Path, content: Any, make: Callable[[Any], Any], what: str = "a psofed result") -> Any:
    """Return ``make(content)``; any failure is a :class:`PsofedError`: the file `path` is not `what`.

    The content may be forged, and HDF5, xarray and JSON raise whatever they like on what they do not expect. So this
    is one of the few places that catch every exception.
    """
    try:
        return make(content)
    except PsofedError as error:  # such as a part from a plugin that is not loaded
        raise PsofedError(f"{path}: {error}") from None
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PsofedError(f"{path}: not {what} ({reason:.300})") from None


def _read(file: Path) -> bytes:
    """Return the content before the last line, which has its checksum."""
    if hasattr(os, "sysconf"):  # not on Windows
        size, memory = file.stat().st_size, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size > memory:
            raise PsofedError(f"{file}: has {size / 1e9:.0f} GB, but this machine only {memory / 1e9:.0f} GB of memory")
    content, mark, checksum = file.read_bytes().rpartition(_MARK)
    if not mark or len(checksum) != _CHECKSUM_LENGTH:
        raise PsofedError(f"{file}: not a psofed result, or cut short (no checksum at its end)")
    if checksum != _checksum(content):
        raise PsofedError(f"{file}: damaged (its checksum does not match); restore it, or compute it again")
    return content


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _load(content: bytes) -> "xarray.Dataset":
    import xarray

    with xarray.open_dataset(io.BytesIO(content), engine="h5netcdf") as opened:
        # psofed writes arrays as they are. A variable that is larger than its file is mostly fill values: HDF5 stores
        # only the parts of an array that were written, so a few bytes can stand for terabytes.
        size = sum(variable.nbytes for variable in opened.variables.values())
        if size > len(content):
            raise PsofedError(f"declares {size / 1e9:.3g} GB of numbers in a file of {len(content) / 1e9:.3g} GB")
        return opened.load()
