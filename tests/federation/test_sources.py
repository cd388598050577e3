"""Where samples come from, and which of them belong before and after the server's values."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psofed import Data, Scenario
from psofed.common.errors import PsofedError
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.online import lms, split_pending
from psofed.federation.client.ready_made import open_data
from psofed.federation.client.sources import Position, SyntheticSource, TableSource
from psofed.federation.protocol.layout import ColumnNames
from psofed.federation.server.ready_made import evaluate_model
from psofed.fleet import draw_fleet

pytestmark = pytest.mark.federation


def test_a_line_counts_once_it_is_complete(tmp_path):
    path = tmp_path / "readings.csv"
    path.write_bytes(b"x1,x2,y\n1,2,3\n4,5,")
    source = TableSource(path, ("x1", "x2"), "y")
    first = source.read(Position(), limit=10)
    assert first.inputs.tolist() == [[1, 2]]
    assert first.targets.tolist() == [3]
    assert first.end == Position(samples=1, offset=14, mark=first.end.mark)
    with path.open("ab") as file:
        file.write(b"6\n7,8,9\n")
    second = source.read(first.end, limit=10)
    assert second.targets.tolist() == [6, 9]
    assert second.end.offset == path.stat().st_size


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 200), max_size=8), limit=st.integers(1, 5))
def test_however_a_file_grows_every_sample_is_read_once(tmp_path_factory, cuts, limit):
    path = tmp_path_factory.mktemp("csv") / "grows.csv"
    text = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(25))
    read, position, written = [], Position(), 0
    for cut in [*sorted(cuts), len(text)]:
        with path.open("ab") as file:
            file.write(text[written:cut])
        written = max(written, min(cut, len(text)))
        while len(samples := TableSource(path, ("x",), "y").read(position, limit)):
            read += samples.targets.tolist()
            position = samples.end
    assert read == [i * i for i in range(25)]


def test_rows_that_are_no_sample_are_skipped_and_counted(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b"x;y\n1;2\n\n1;nan\n1;2;3\nabc;1\n\xff\xfe\n1e999;1\n3;4\n")
    samples = TableSource(path, ("x",), "y").read(Position(), 10)
    assert samples.inputs.ravel().tolist() == [1, 3]
    assert samples.end.skipped == 5  # an empty line is not a row


def test_a_table_without_a_header_is_refused(tmp_path):
    path = tmp_path / "bare.csv"
    path.write_bytes(b"\xef\xbb\xbf1,2,3\n4,,6\n")
    with pytest.raises(PsofedError, match=r"bare.csv lacks a, y; it has 1, 2, 3; is the header line .* missing\?"):
        TableSource(path, ("a",), "y").read(Position(), 9)
    path.write_text("2001,2002\n1,2\n")  # numbers may be names
    assert TableSource(path).choose(ColumnNames(("2001",), "2002")).read(Position(), 9).targets.tolist() == [2]


def test_a_file_without_a_line_yet_has_no_sample(tmp_path):
    path = tmp_path / "later.csv"
    path.write_text("x,y")
    found = TableSource(path, ("x",), "y").read(Position(), 9)
    assert (len(found), found.problem) == (0, "later.csv has no complete line yet")


def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("x,y\n1,1\n2,2\n3,3\n")
    source = TableSource(path, ("x",), "y")
    end = source.read(Position(), 10).end
    path.write_text("x,y\n9,9\n")
    assert source.read(end, 10).targets.tolist() == [9]


@pytest.mark.parametrize("kind", ["rename", "copy"])
@pytest.mark.parametrize("width", [8, 300])
def test_a_rotated_log_of_fixed_line_width_loses_no_row(tmp_path, kind, width):
    """The line feed at the old offset is in place; neither the beginning of the file nor what was read last is."""
    path, new = tmp_path / "log.csv", tmp_path / "log.new"

    def lines(first, count):
        return "x,y\n" + "".join(f"{n:0{width}d},{n % 7:04d}\n" for n in range(first, first + count))

    path.write_text(lines(0, 100))
    source = TableSource(path, ("x",), "y")
    end = source.read(Position(), 1000).end
    new.write_text(lines(100, 150))
    if kind == "rename":
        new.replace(path)
    else:
        path.write_bytes(new.read_bytes())
    rest = source.read(end, 1000)
    assert rest.inputs[:, 0].tolist() == list(range(100, 250))
    path.write_text(lines(100, 160))  # an editor or rsync writes the whole of a file that has grown
    assert source.read(rest.end, 1000).inputs[:, 0].tolist() == list(range(250, 260))


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(PsofedError, match=r"absent\.csv"):
        TableSource(tmp_path / "absent.csv", ("x",), "y").read(Position(), 1)


def test_a_file_that_was_emptied_is_told_of_once_it_has_rows_again_and_a_pipe_is_refused(tmp_path, caplog):
    """A node looks five times a second: neither may it fill its log, nor wait for whoever writes to a pipe."""
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,2\n3,4\n")
    source = TableSource(path, ("x",), "y")
    end = source.read(Position(), 9).end
    path.write_text("x,y\n")
    assert source.read(end, 9).end == end
    assert not caplog.messages
    path.write_text("x,y\n5,6\n")
    assert source.read(end, 9).targets.tolist() == [6.0]
    assert "was replaced by another file" in caplog.text
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(PsofedError, match="not a file"):
        source.read(end, 9)


@given(pending=st.integers(0, 1000), elapsed=st.integers(1, 50))
def test_pending_samples_are_split_by_rounds(pending, elapsed):
    missed, current = split_pending(pending, elapsed)
    assert missed + current == pending
    assert current == 0 if pending == 0 else current >= 1
    if pending % elapsed == 0:
        assert current == pending // elapsed


def test_lms_is_the_recursion():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    w = np.zeros(3)
    errors = lms(w, x, y, 0.1)
    literal = np.zeros(3)
    for n in range(20):
        e = y[n] - literal @ x[n]
        assert errors[n] == pytest.approx(e)
        literal = literal + 0.1 * x[n] * e
    np.testing.assert_allclose(w, literal)


def test_synthetic_samples_have_the_scenarios_moments():
    """Over 20000 samples, within 6 standard errors."""
    data = Data(input_variance=0.8, noise_variance=0.02, input_correlation=0.5)
    scenario = Scenario(num_clients=5, dimension=3, data=data)
    samples = SyntheticSource(scenario, partition=2, seed=1).read(Position(), 20_000)
    covariance = samples.inputs.T @ samples.inputs / 20_000
    expected = draw_fleet(scenario).covariances()[2]
    np.testing.assert_allclose(covariance, expected, atol=6 * 0.8 * np.sqrt(2 / 20_000))
    noise = samples.targets - samples.inputs @ draw_fleet(scenario).target
    assert abs(noise.var() - 0.02) < 6 * 0.02 * np.sqrt(2 / 20_000)


def test_synthetic_inputs_may_have_a_singular_covariance():
    scenario = Scenario(num_clients=2, dimension=2, data=Data(covariances=[np.ones((2, 2))] * 2))
    inputs = SyntheticSource(scenario, partition=0, seed=1).read(Position(), 20_000).inputs
    np.testing.assert_allclose(inputs.T @ inputs / 20_000, 1.0, atol=6 * np.sqrt(2 / 20_000))


def test_the_servers_test_mse_follows_its_deviation():
    scenario = Scenario(num_clients=5, dimension=4, data=Data(test_instances=5000, noise_variance=0.01))
    at_target = evaluate_model(scenario, draw_fleet(scenario).target, seed=0)
    assert at_target["server-msd"] == 0
    assert at_target["test-mse"] == pytest.approx(0.01, rel=0.15)
    assert evaluate_model(scenario, np.zeros(4), seed=0)["test-mse"] == pytest.approx(1.01, rel=0.15)


@pytest.mark.parametrize(
    ("data", "message"),
    [("rows.parquet", "convert it to CSV"), ("run.toml", "this is TOML"), ("stream:samples", "Python generator")],
)
def test_parquet_files_scenarios_and_generators_are_refused_by_name(data, message):
    with pytest.raises(PsofedError, match=message):
        open_data(NodeOptions(data=data))
