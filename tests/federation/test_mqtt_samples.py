"""Samples from MQTT: what a payload may be, what arrives twice or late, and a real broker that dies."""

import json

import numpy as np
import pytest

from psofed.common.errors import PsofedError
from psofed.federation.client import mqtt
from psofed.federation.client.mqtt import MqttFeed, MqttTopic, read_payload
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.sources import Position, TableSource

pytestmark = pytest.mark.federation

COLUMNS = ["wind", "output"]
TOPIC = "mqtt://127.0.0.1:{port}/plant/{{client}}/readings"


def sample(time, wind=3.0, output=2.5):
    return json.dumps({"time": time, "wind": wind, "output": output}).encode()


@pytest.fixture
def said():
    return []


@pytest.fixture
def feed(tmp_path, said):
    return MqttFeed(MqttTopic.parse(TOPIC.format(port=1883)), tmp_path / "mqtt.csv", COLUMNS, "time", said.append)


def winds(path, client=""):
    source = TableSource(path, ("wind",), "output", "client" if client else "", client)
    return source.read(Position(), 1000).inputs.ravel().tolist()


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"", "without named fields"),
        (b"3.0,2.5", "without named fields"),
        (b"[1, 2]", "without named fields"),
        (b'{"wind": 3', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"wind": 3}', "without the field output"),
        (b'{"wind": "3\\nsouth,1,4", "output": 1}', "not one printable line"),
        (b"x" * (1 << 21), "2,097,152 bytes"),
    ],
)
def test_a_payload_that_is_not_what_was_promised_is_named(payload, problem):
    with pytest.raises(PsofedError, match=problem):
        read_payload(payload, COLUMNS)


def test_a_payload_is_json_or_csv_with_named_fields():
    expected = [["3", "2.5"], ["4", "2"]]
    for payload in (
        b'[{"output": 2.5, "wind": 3}, {"wind": 4, "output": 2, "more": "text"}]',
        b"output,more,wind\n2.5,x,3\n2,y,4\n",
    ):
        assert read_payload(payload, COLUMNS) == expected


def test_each_client_has_its_rows_and_a_duplicate_counts_once(feed, said):
    for client, time, wind in [("north", 1, 1.0), ("south", 1, 5.0), ("north", 3, 3.0), ("north", 2, 2.0)]:
        feed.take(f"plant/{client}/readings", sample(time, wind))
    feed.take("plant/north/readings", sample(3, 3.0))
    assert winds(feed.path, "north") == [1.0, 3.0, 2.0], "out of order, but new"
    assert winds(feed.path, "south") == [5.0]
    assert feed.counts == {"rows": 4, "duplicate": 1}
    assert said == ["dropped 1 duplicate MQTT sample; the last: north, 3"]


def test_what_is_no_number_is_skipped_where_the_table_is_read(feed):
    for time, wind in enumerate(('"calm"', "NaN", "[1, 2]", "3", "1e999")):
        feed.take("plant/north/readings", f'{{"time": {time}, "wind": {wind}, "output": 1}}'.encode())
    samples = TableSource(feed.path, ("wind",), "output", "client", "north").read(Position(), 9)
    np.testing.assert_array_equal(samples.inputs.ravel(), [np.nan, 3.0])
    assert (samples.end.skipped, samples.problem) == (
        3,
        "'inf' in column wind is not finite, or too large to compute with",
    )


def test_what_is_too_old_to_be_told_from_a_duplicate_is_dropped(feed, monkeypatch):
    monkeypatch.setattr(mqtt, "_REMEMBERED", 3)
    for time in ("2026-01-01T00:00:05", "2026-01-01T00:00:04", "2026-01-01T00:00:06", "2026-01-01T00:00:01"):
        feed.take("plant/north/readings", sample(time))
    assert feed.counts == {"rows": 3, "late": 1}


def test_after_a_restart_duplicates_are_still_recognised(feed, said):
    feed.take("plant/north/readings", sample(7))
    with feed.path.open("ab") as file:
        file.write(b"north,8,1")  # killed within a row
    again = MqttFeed(feed.place, feed.path, COLUMNS, "time", said.append)
    again.take("plant/north/readings", sample(7))
    again.take("plant/north/readings", sample(8, 4.0))
    assert again.counts == {"rows": 1, "duplicate": 1}
    assert winds(feed.path, "north") == [3.0, 4.0]
    with pytest.raises(PsofedError, match=r"mqtt\.csv has the columns client,time,wind,output, not client,wind,output"):
        MqttFeed(feed.place, feed.path, COLUMNS, "", said.append)


def test_without_a_time_only_what_the_broker_has_retained_is_taken_for_a_duplicate(tmp_path, said):
    feed = MqttFeed(MqttTopic.parse("mqtt://b/plant"), tmp_path / "m.csv", COLUMNS, "", said.append)
    payload = sample(0)
    feed.take("plant", payload)
    feed.take("plant", payload)
    feed.take("plant", sample(2), retained=True)
    assert feed.counts == {"rows": 2, "duplicate": 1}


@pytest.mark.parametrize("time_column", ["time", ""])
def test_many_clients_do_not_fill_the_memory(tmp_path, said, monkeypatch, time_column):
    """Anyone who may publish can name clients: a number of samples of each is remembered, and clients are bounded."""
    monkeypatch.setattr(mqtt, "_REMEMBERED", 10)
    monkeypatch.setattr(mqtt, "MAX_CLIENTS", 20)
    place = MqttTopic.parse(TOPIC.format(port=1883))
    feed = MqttFeed(place, tmp_path / "m.csv", COLUMNS, time_column, said.append)
    for time in range(30):
        for client in range(20):
            feed.take(f"plant/c{client}/readings", sample(time + 0.01 * client))
    with pytest.raises(PsofedError, match="more than 20 clients"):
        feed.take("plant/more/readings", sample(0))
    remembered = [len(of_client) for of_client in feed._times.values()]
    assert remembered == [10 if time_column else 0] * 20
    assert feed.counts["rows"] == 600


def test_a_sample_that_could_not_be_written_is_no_duplicate_when_it_comes_again(feed, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(feed, "_append", full)
        with pytest.raises(OSError, match="No space"):
            feed.take("plant/north/readings", sample(1))
    feed.take("plant/north/readings", sample(1))
    assert feed.counts == {"rows": 1}


def test_a_long_file_begins_again(feed, monkeypatch):
    monkeypatch.setattr(mqtt, "_FILE_BYTES", 100)
    for time in range(20):
        feed.take("plant/north/readings", sample(time, float(time)))
    assert feed.path.with_name("mqtt.csv.1").exists()
    assert winds(feed.path, "north")[-1] == 19.0
    assert feed.path.stat().st_size < 200


@pytest.mark.parametrize("client", ["", "x" * 65, "a\x07", "north ", "'=north"])
def test_a_client_without_a_usable_name_is_refused(feed, client):
    """The last two would be read back as another client's: a broker may let one publish there and not here."""
    topic = f"plant/{client}/readings"
    with pytest.raises(PsofedError, match="a client's name has 1 to 64 printable characters"):
        feed.take(topic, sample(1))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mqtt://broker", "mqtt://HOST:PORT/TOPIC"),
        ("mqtt:///topic", "mqtt://HOST:PORT/TOPIC"),
        ("mqtt://broker:0x/topic", "mqtt://HOST:PORT/TOPIC"),
        ("mqtt://me:secret@broker/topic", "PSOFED_MQTT_USER"),
        ("mqtt://broker/plant/#", "without wildcards"),
        ("mqtt://broker/{client}/{client}", "at most one level"),
        ("mqtt://broker/x{client}", "without wildcards"),
    ],
)
def test_an_address_that_is_none_is_refused(url, problem):
    with pytest.raises(PsofedError, match=problem):
        MqttTopic.parse(url)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"data": "mqtt://b/t"}, "needs --features and --target-column"),
        ({"data": "mqtt://b/t", "client": "north"}, "write {client} in its place"),
        ({"data": "mqtt://b/{client}", "client_column": "station"}, "--client-column: an MQTT sample's client"),
        ({"data": "x.csv", "time_column": "t"}, "--time-column describes MQTT samples"),
    ],
)
def test_options_that_do_not_fit_are_refused(given, problem):
    columns = {"features": ("wind",), "target_column": "output"} if len(given) > 1 else {}
    with pytest.raises(PsofedError, match=problem):
        NodeOptions(**given, **columns)
