"""Read a CSV file (pandas) or a Parquet file (pyarrow) as a data frame, after checking its format.

pandas fills up rows that are too short, takes longer ones for an index and reads over NUL bytes. So a CSV file's bytes
are checked first: encoding, header, and the number of fields in each row.
"""

import csv
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.errors import PsofedError, missing_package
from psofed.data.values import MISSING, delimiter_of
from psofed.render.numbers import counted

if TYPE_CHECKING:
    import pandas

PARQUET = (".parquet", ".pq")
_MOST_BYTES = 4 * 2**30
_LONGEST_LINE = 2**20
_MOST_COLUMNS = 10_000

_DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs"}
_MISSING_TEXTS = sorted({form(text) for text in MISSING for form in (str, str.upper, str.title)} | {"NaN"})


@dataclass(frozen=True, eq=False)
class TableFrame:
    """A data frame and its source.

    Attributes
    ----------
    data : pandas.DataFrame
        Columns that are numbers throughout have a dtype of numbers, all others hold what stands there.
    source : str
        What errors call it.
    delimiter : str
        What separated the fields.
    content : bytes
        The file, to find a row's line in; empty if it has no lines.
    """

    data: "pandas.DataFrame"
    source: str
    delimiter: str = ","
    content: bytes = b""

    def line_of(self, row: int) -> int:
        """Return the line of a row (counted from 0) in a CSV file, whose header is line 1, or its number elsewhere."""
        return self._record(row)[0] if self.content else row + 1

    def field(self, row: int, column: str) -> Any:
        """Return the content of a field as it was written."""
        if not self.content:
            return self.data[column].iloc[row]
        return self._record(row)[1][list(self.data.columns).index(column)].strip()

    def _record(self, row: int) -> tuple[int, list[str]]:
        reader = csv.reader(_lines(self.content), delimiter=self.delimiter)
        records = ((reader.line_num, record) for record in reader if record)
        return next(itertools.islice(records, row + 1, None))


def refuse_toml(path: Path) -> None:
    """Refuse a scenario where a table is expected."""
    if path.suffix.lower() == ".toml":
        raise PsofedError(f"{path}: this is TOML, such as a scenario; a table is a CSV or Parquet file")


def read_frame(path: Path, text_column: str | None = None) -> TableFrame:
    """Read a CSV or Parquet file; `text_column` is read as text (``007`` and ``NA`` are names there)."""
    refuse_toml(path)
    if is_parquet(path):
        return TableFrame(_open_parquet(path).to_pandas(), str(path))
    return _read_csv(path, text_column)


def read_header(path: str | Path) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file."""
    path = Path(path)
    if is_parquet(path):
        return list(_open_parquet(path).column_names)
    return _split_header(path, _read_bytes(path))[0]


def is_parquet(path: Path) -> bool:
    """Tell whether a file name has a Parquet extension."""
    return path.suffix.lower() in PARQUET


def _read_csv(path: Path, text_column: str | None) -> TableFrame:
    import pandas

    content = _read_bytes(path)
    header, delimiter = _split_header(path, content)
    _check_rows(path, content, delimiter, len(header))
    # Positions stand for names, which may be repeated or empty; the caller says what is wrong with them.
    as_text = [at for at, name in enumerate(header) if name == text_column]
    missing = {at: _MISSING_TEXTS for at in range(len(header)) if at not in as_text}
    try:
        data = pandas.read_csv(
            io.BytesIO(content),
            sep=delimiter,
            header=None,
            names=range(len(header)),
            skiprows=1,
            index_col=False,
            dtype=dict.fromkeys(as_text, object),
            keep_default_na=False,
            na_values=missing,
            skipinitialspace=True,
            low_memory=False,
            encoding="utf-8",
            **_exact_floats(pandas.__version__),
        )
    except pandas.errors.EmptyDataError:
        data = pandas.DataFrame({at: [] for at in range(len(header))})
    except (pandas.errors.ParserError, ValueError, OverflowError) as error:
        raise PsofedError(f"{path}: not valid CSV ({str(error).splitlines()[0]})") from None
    data.columns = header
    return TableFrame(data, str(path), delimiter, content)


def _exact_floats(version: str) -> dict[str, Any]:
    """Make pandas read numbers to the last bit, as Python does; since 3.1 it always does."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}


def _read_bytes(path: Path) -> bytes:
    """Return the bytes of a text file after checking: UTF-8, no NUL byte, lines of limited length."""
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise PsofedError(f"{path}: has {size:,} bytes; the limit is {_MOST_BYTES:,}")
        content = path.read_bytes()
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except OSError as error:
        raise PsofedError(f"{path}: cannot be read ({error.strerror})") from None
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not content.isascii():
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            row = content.count(b"\n", 0, error.start) + 1
            raise PsofedError(
                f"{path}: not UTF-8 text (byte 0x{content[error.start]:02x} in row {row}); save it as CSV UTF-8"
            ) from None
    if (at := content.find(b"\0")) >= 0:
        row = content.count(b"\n", 0, at) + 1
        raise PsofedError(f"{path}: row {row} contains a NUL byte; is it a text file? Save a spreadsheet as CSV")
    return content


def _split_header(path: Path, content: bytes) -> tuple[list[str], str]:
    line = content[: content.find(b"\n")] if b"\n" in content else content
    if not line.strip():
        raise PsofedError(f"{path}: the file is empty; it must start with a header line of column names")
    if len(line) > _LONGEST_LINE:
        raise PsofedError(f"{path}: row 1 is longer than {_LONGEST_LINE:,} bytes")
    text = line.decode("utf-8")
    delimiter = delimiter_of(text)
    try:
        header = [name.strip() for name in next(csv.reader([text], delimiter=delimiter, strict=True))]
    except csv.Error as error:
        raise PsofedError(f"{path}: the header is not CSV ({error})") from None
    if len(header) > _MOST_COLUMNS:
        raise PsofedError(f"{path}: has {len(header):,} columns; the limit is {_MOST_COLUMNS:,}")
    return header, delimiter


def _check_rows(path: Path, content: bytes, delimiter: str, width: int) -> None:
    """Refuse a row that is too long or whose number of fields differs from the header."""
    reader = csv.reader(_lines(content), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row and len(row) != width:
                raise _wrong_length(path, reader.line_num, len(row), width, delimiter)
    except csv.Error as error:  # a field longer than 131,072 characters among them
        raise PsofedError(f"{path}: row {reader.line_num} is not CSV ({error})") from None


def _wrong_length(path: Path, row: int, fields: int, width: int, delimiter: str) -> PsofedError:
    text = f"{path}: row {row} has {counted(fields, 'field')}, the header has {width}"
    if width == 1:
        return PsofedError(f"{text}; the first line must be the header")
    quotes = ": put numbers with decimal commas in quotes" if delimiter == "," and fields > width else ""
    return PsofedError(f"{text}; fields are separated by {_DELIMITER_NAMES[delimiter]}, as in the header{quotes}")


def _lines(content: bytes) -> Iterator[str]:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="\n")


def _open_parquet(path: Path) -> Any:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table as read
    except ImportError:
        raise missing_package(f"{path}: reading Parquet", "pyarrow", "parquet") from None
    try:
        return read(path)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except (ArrowException, OSError) as error:
        raise PsofedError(f"{path}: not valid Parquet ({str(error).splitlines()[0]})") from None
