"""Tables of one's own: files, data frames and arrays; what is left out and noted, what is refused and how."""

from pathlib import Path

import numpy as np
import pandas
import pytest

import psofed
from psofed import InvalidValueError, PsofedError, from_arrays, read_data
from psofed.data.frames import read_header
from psofed.data.table import read_table
from psofed.data.values import number
from psofed.federation.client.sources import Position, TableSource

pytestmark = pytest.mark.fleet

COLUMNS = ["time", "who", "site", "x", "z", "y"]


def make_frame(rows: int = 40, clients: tuple = ("a", "b"), seed: int = 1) -> pandas.DataFrame:
    rng = np.random.default_rng(seed)
    count = rows * len(clients)
    x, z = rng.standard_normal((2, count)).round(3)
    return pandas.DataFrame(
        {
            "time": [f"2024-05-{1 + n // 48:02d} {n // 2 % 24:02d}:00" for n in range(count)],
            "who": [clients[n % len(clients)] for n in range(count)],
            "site": [("north", "south")[n % 2] for n in range(count)],
            "x": x,
            "z": z,
            "y": (x - z + rng.standard_normal(count)).round(3),
        }
    )


def write(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def same_samples(one: psofed.OwnData, other: psofed.OwnData) -> bool:
    return one.table.clients == other.table.clients and all(
        np.array_equal(a, b) for a, b in zip((*one.inputs, *one.targets), (*other.inputs, *other.targets), strict=True)
    )


def test_files_data_frames_and_arrays_give_the_same_samples(tmp_path) -> None:
    polars = pytest.importorskip("polars")
    frame = make_frame()
    frame.to_csv(tmp_path / "t.csv", index=False)
    from_file = read_data(tmp_path / "t.csv", "who", "y")
    for other in (
        read_data(str(tmp_path / "t.csv"), "who", "y"),
        read_data(frame, "who", "y"),
        read_data(polars.DataFrame({name: frame[name].to_list() for name in COLUMNS}), "who", "y"),
        from_arrays(frame[["x", "z"]].to_numpy(), frame["y"], frame["who"], features=["x", "z"]),
    ):
        assert same_samples(from_file, other)
    assert from_file.table.features == ("x", "z")


def test_what_is_no_number_is_left_out_with_a_note(tmp_path) -> None:
    data = read_data(make_frame(), "who", "y")
    assert data.table.left_out == {"time": "times", "site": "text"}
    assert data.notes() == [
        "y is predicted from all other numeric columns: x and z.",
        "columns were left out: time (times), site (text).",
    ]
    assert data.describe()["columns_left_out"] == {"time": "times", "site": "text"}
    stamped = make_frame().assign(time=pandas.to_datetime(make_frame()["time"]))
    assert read_data(stamped, "who", "y").table.left_out["time"] == "times"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["x", "site"], "row 2, column site: 'north' is not a number; site holds text: leave it out of the features"),
        (["time"], "row 2, column time: '2024-05-01 00:00' is not a number; time holds times: leave it out"),
    ],
)
def test_a_named_column_that_is_no_number_is_refused_for_what_it_is(tmp_path, features, message: str) -> None:
    make_frame().to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(PsofedError) as error:
        read_data(tmp_path / "t.csv", "who", "y", features)
    assert message in str(error.value)


def test_the_advice_fits_the_column(tmp_path) -> None:
    lines = make_frame().to_csv(index=False).splitlines()
    one_slip = write(tmp_path, "\n".join([*lines[:5], lines[5].replace(lines[5].split(",")[3], "1.2.3"), *lines[6:]]))
    with pytest.raises(
        PsofedError, match=r"row 6, column x: '1.2.3' is not a number; correct the value, leave it empty"
    ):
        read_data(one_slip, "who", "y")
    with pytest.raises(PsofedError, match="column site: 'north' is not a number; the target must be a number"):
        read_data(make_frame(), "who", "site")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_are_read_and_noted(tmp_path, delimiter: str) -> None:
    frame = make_frame()
    path = write(tmp_path, frame.to_csv(index=False, sep=delimiter, decimal=","))
    data = read_data(path, "who", "y")
    assert same_samples(data, read_data(frame, "who", "y"))
    assert set(data.table.decimal_commas) == {"x", "z", "y"}
    assert "decimal commas were read in y, x, z." in data.notes()


def test_quoted_decimal_commas_are_read_and_what_could_be_thousands_is_refused(tmp_path) -> None:
    quoted = "who,x,y\n" + "".join(f'a,"{n},5","0,{n:03d}"\n' for n in range(40))
    assert read_table(write(tmp_path, quoted), "who", "y").targets[0][7] == 0.007
    with pytest.raises(PsofedError, match=r"row 2, column x: '1,234' could be 1.234 or 1234"):
        read_table(write(tmp_path, 'who,x,y\na,"1,234",2\n'), "who", "y")
    with pytest.raises(PsofedError, match=r"'1.25' has a decimal point where other rows have decimal commas"):
        read_table(write(tmp_path, "who;x;y\na;1,5;2\na;1.25;2\n"), "who", "y")
    assert number("1.234.567,5", ";") == 1234567.5


@pytest.mark.parametrize("text", ["1_000", "１２", "0x10", "1e", "1,2,3", "--1", "1 2"])
def test_what_python_alone_or_nobody_takes_for_a_number_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        number(text)


def test_clients_with_too_few_rows_or_a_constant_target_are_left_out_with_a_note() -> None:
    frame = make_frame(clients=("a", "b", "c"))
    lone = frame.iloc[:1].assign(who="lone")
    flat = frame[frame["who"] == "c"].assign(who="flat", y=7.0)
    data = read_data(pandas.concat([frame, lone, flat]), "who", "y")
    assert data.table.clients == ("a", "b", "c")
    assert data.left_out["lone"].startswith("it has 1 row with y, and at least 30 are needed")
    assert data.left_out["flat"] == "its y never changes"
    assert any(note.startswith("client lone was left out") for note in data.notes())
    with pytest.raises(PsofedError, match="client a cannot take part: it has 40 rows with y, and at least 50"):
        read_data(frame, "who", "y", min_rows=50)
    assert read_data(frame, "who", "y", leave_out=["b"]).left_out == {"b": "as asked"}
    with pytest.raises(InvalidValueError, match="leave_out must be names of clients, such as a, b, c"):
        read_data(frame, "who", "y", leave_out=["nobody"])


def test_rows_that_go_back_in_time_are_noted() -> None:
    frame = make_frame()
    notes = " ".join(read_data(pandas.concat([frame, frame.iloc[[3, 5]]]), "who", "y").notes())
    assert "by time those of b go back in time" in notes


def test_columns_without_a_name_are_left_out_however_many(tmp_path) -> None:
    rows = "".join(f"a,2024-05-01,t,{n},{n % 7}\n" for n in range(60))
    table = read_table(write(tmp_path, "who,,,x,y\n" + rows), "who", "y")
    assert (table.features, table.left_out) == (("x",), {"(unnamed)": "no name"})


def test_a_code_for_missing_values_is_noted() -> None:
    frame = make_frame()
    frame["wind"] = np.arange(len(frame)) % 20.0
    assert not read_data(frame, "who", "y").table.missing_codes
    frame.loc[::9, "wind"] = -999.0
    data = read_data(frame, "who", "y")
    assert data.table.missing_codes == {"wind": (-999.0, len(frame.loc[::9]))}
    assert any("wind is -999 in" in note and "leave it empty" in note for note in data.notes())


def test_names_of_clients_stay_as_they_stand(tmp_path) -> None:
    names = ("NA", "007", "Zürich 東京", "-")
    frame = make_frame(clients=names)
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert read_data(tmp_path / "t.csv", "who", "y").table.clients == names
    numbered = make_frame(clients=(1.0, 2.0))
    assert read_data(numbered, "who", "y").table.clients == ("1", "2")


HOSTILE = {
    "empty": ("", "is empty"),
    "no rows": ("who,x,y\n", "there is a header but no rows"),
    "repeated column": ("who,x,x,y\na,1,2,3\n", "column x appears 2 times"),
    "no feature": ("who,y\n" + "a,2\n" * 50, "no column is left for features"),
    "no number": ("who,x,y\na,1,2\na,one,3\n", "row 3, column x: 'one' is not a number"),
    "infinity": ("who,x,y\na,1,2\na,inf,3\n", "row 3, column x: 'inf' is not finite"),
    "open quote": ('who,x,y\na,1,"2\n', "row 2 is not CSV"),
    "missing field": ("who,x,y\na,1,2\na,3\n", "row 3 has 2 fields, the header has 3"),
    "few rows": ("who,x,y\na,1,2\nb,1,\n", "cannot take part: it has 1 row with y, and at least 30 are needed"),
    "constant": ("who,x,y\n" + "a,1,2\n" * 50, "client a cannot take part: its y never changes"),
    "nul": (b"who,x,y\na,1,2\n\0\n", "row 3 contains a NUL byte"),
    "latin-1": ("who,x,y\nZürich,1,2\n".encode("latin-1"), r"not UTF-8 text \(byte 0xfc in row 2\)"),
    "endless line": (b"who,x,y\n" + b"a" * (2**20 + 1), "row 2 is not CSV"),
    "endless field": (b'who,x,y\n"' + b"a" * 200_000 + b'",1,2', "row 2 is not CSV"),
    "no header": (b"a,1,2\na,3,4\n", "no column who; the columns are a, 1, 2; is the header line missing?"),
    "extra field": (b"who,x,y\na,1,2\na,1,2,\n", "row 3 has 4 fields, the header has 3"),
    "extra field everywhere": (b"who,x,y\na,1,2,\na,1,2,\n", "row 2 has 4 fields, the header has 3"),
    "infinite": (b"who,x,y\na,1,2\n\na,1e999,2\n", "row 4, column x: '1e999' is not finite"),
    "no client": (b"who,x,y\na,1,2\n ,1,2\n", "row 3 has no client in column who"),
    "only constants": (b"who,x,y\n" + b"a,1,2\na,1,3\n" * 20, r"all features are constant \(x\)"),
    "too large": (b"who,x,y\n" + b"a,1e200,2\na,-1e200,3\n" * 20, r"values beyond 1e\+100"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_one_line_that_says_where(tmp_path, name: str) -> None:
    content, message = HOSTILE[name]
    with pytest.raises(PsofedError, match=message) as error:
        read_data(write(tmp_path, content), "who", "y")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_all_line_ends_and_a_bom_are_understood(tmp_path, ends: str) -> None:
    frame = make_frame()
    text = "\ufeff" + frame.to_csv(index=False).replace("\n", ends)
    path = write(tmp_path, text)
    assert read_header(path) == COLUMNS
    assert same_samples(read_data(path, "who", "y"), read_data(frame, "who", "y"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0, 2.0], ["a"]), "of equal length"),
        (([[[1.0]]], [1.0], ["a"]), r"X \(rows, d\)"),
        (({"x": 1}, [1.0], ["a"]), r"X \(rows, d\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        from_arrays(*arguments)


def test_other_things_than_tables_are_refused_by_name() -> None:
    with pytest.raises(InvalidValueError, match=r"data must be .*psofed.from_arrays"):
        read_data([[1, 2]], "who", "y")
    with pytest.raises(InvalidValueError, match="features must be a list of words"):
        read_data(make_frame(), "who", "y", "x")


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_federations_client_reads_the_same_columns_and_values(tmp_path, delimiter: str) -> None:
    decimal = "," if delimiter == ";" else "."
    frame = make_frame()
    frame.loc[3, "x"] = np.nan
    path = write(tmp_path, frame.to_csv(index=False, sep=delimiter, decimal=decimal))
    table = read_table(path, "who", "y")
    source = TableSource(path, table.features, "y", client_column="who", client="b")
    samples = source.read(Position(), 1000)
    np.testing.assert_array_equal(samples.inputs, table.inputs[1])
    np.testing.assert_array_equal(samples.targets, table.targets[1])
