"""Links of a real client: few bits, privacy, and refusals by name."""

import math

import numpy as np
import pytest
from deployments import run_in_process

from psofed import Links, NotCoveredError, PsofedError, Scenario
from psofed.channels import Lossy, Noisy, Private, Quantised
from psofed.federation.client.uplink import UPLINK, Uplink, read_link
from psofed.federation.deploy.app import attack_of, links_of
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.protocol.answers import (
    LEARNED,
    FewBits,
    NodeReply,
    Reply,
    decode_reply,
    encode_reply,
)
from psofed.federation.protocol.node_options import NodeOptions
from psofed.federation.protocol.wire import VALUES, BadReplyError
from psofed.results.privacy import gaussian_epsilon

pytestmark = pytest.mark.federation

SCENARIO = Scenario(num_clients=3, dimension=4, num_participants=3, num_shared=2, iterations=6)
F8 = np.dtype(np.float64)


def reply_of(values: np.ndarray, **changes) -> Reply:
    return Reply(**{"status": LEARNED, "values": values, "num_examples": 1, **changes})


def encoded(reply: Reply):
    return encode_reply(NodeReply(session="s", round_number=3, node=7, replies=(reply,)))


def arrived_of(content, length: int) -> Reply:
    (reply,) = decode_reply(content, length, F8).replies
    return reply


@pytest.mark.parametrize("rounding", ["dithered", "stochastic"])
@pytest.mark.parametrize("bits", [1, 4, 11])
def test_quantised_values_travel_in_their_bits_and_arrive_as_the_channel_says(
    rounding: str, bits: int
) -> None:
    values = np.random.default_rng(0).uniform(-1.5, 1.5, 1000)
    uplink = Uplink((Quantised(bits=bits, reach=2.0, rounding=rounding),))
    sent = uplink.send(reply_of(values), read_link({}, 1000), ("s", 7, 3), np.arange(1000))
    content = encoded(sent)
    assert content.array_records["arrays"][VALUES].numpy().nbytes == math.ceil(1000 * bits / 8)
    arrived = arrived_of(content, 1000)
    assert np.allclose(arrived.values, sent.values, atol=1e-12)
    step = 4.0 / 2**bits
    if rounding == "dithered" and bits > 1:
        assert np.mean((arrived.values - values) ** 2) == pytest.approx(step**2 / 12, rel=0.1)
    assert abs(np.mean(arrived.values - values)) < 5 * step / 1000**0.5


@pytest.mark.parametrize(
    "change", [{"bits": 0}, {"bits": 33}, {"reach": math.nan}, {"reach": -1.0}, {"dithered": 2}]
)
def test_a_packed_reply_that_makes_no_sense_is_refused(change: dict) -> None:
    few_bits = FewBits(np.array([0, 15, 3], np.uint64), 4, 1.0, False)
    content = encoded(reply_of(np.zeros(3), few_bits=few_bits))
    assert arrived_of(content, 3).values.tolist() == [-0.9375, 0.9375, -0.5625]
    for name, value in change.items():
        content.config_records["psofed"][name] = value
    with pytest.raises(BadReplyError):
        decode_reply(content, 3, F8)
    with pytest.raises(BadReplyError):
        decode_reply(encoded(reply_of(np.zeros(3), few_bits=few_bits)), 5, F8)


def test_a_private_client_clips_adds_noise_and_counts_what_it_spends() -> None:
    uplink, records, entries = (
        Uplink((Private(clip=1.0, multiplier=0.5, delta=1e-6),)),
        dict[str, object](),
        np.arange(400),
    )
    server, far = np.full(400, 3.0), reply_of(np.full(400, 1000.0))
    sent = []
    for n in (1, 2, 2, 3):  # the server asks for round 2 again
        records = {UPLINK: uplink.note(records, 400, entries, server, f"0 {n}")}
        sent.append(uplink.send(far, read_link(records, 400), ("s", 7, n), entries))
    assert np.array_equal(sent[1].values, sent[2].values)
    assert not np.array_equal(sent[0].values, sent[1].values)
    assert np.std(sent[0].values) == pytest.approx(0.5, rel=0.15)
    assert np.mean(sent[0].values) == pytest.approx(3.0 + 1.0 / 20, abs=0.1)
    spent = sent[-1].metrics
    assert spent["privacy-uploads"] == 3
    assert spent["privacy-epsilon"] == gaussian_epsilon(0.5, 3, 1e-6)
    assert spent["privacy-delta"] == 1e-6


def test_a_run_of_the_ready_made_app_is_quantised_and_private_and_reports_it(tmp_path) -> None:
    links = Links(up=(Private(clip=0.5, multiplier=0.2), Quantised(bits=8, reach=2.0)))
    settings = RunSettings(
        scenario=SCENARIO.replace(channel=links), synthetic=True, min_nodes=3, newcomers="zeros"
    )
    result = run_in_process(settings, [0, 1, 2], tmp_path / "run")
    assert result["communication"]["payload_bytes_up"] == 6 * 3 * 2  # one byte per value
    spent = {name: node["privacy"] for name, node in result["nodes"].items()}
    expected = {"epsilon": gaussian_epsilon(0.2, 6, 1e-5), "delta": 1e-5, "uploads": 6}
    assert spent == dict.fromkeys(("1000", "1001", "1002"), expected)


def test_what_a_node_is_told_comes_before_what_the_run_says() -> None:
    run = RunSettings(scenario=SCENARIO.replace(channel=Links(up=Quantised(bits=8, reach=2.0))))
    assert links_of(NodeOptions(), run) == (Quantised(bits=8, reach=2.0),)
    node = NodeOptions(bits=4, reach=1.0, clip=0.1, multiplier=2.0)
    assert NodeOptions.from_node_config(node.to_node_config()) == node
    assert links_of(node, run) == (Private(clip=0.1, multiplier=2.0), Quantised(bits=4, reach=1.0))


def test_an_attack_of_probability_or_strength_0_reaches_the_node() -> None:
    node = NodeOptions(byzantine=True, attack="gaussian", attack_probability=0.0, attack_strength=0.0)
    attack = attack_of(NodeOptions.from_node_config(node.to_node_config()))
    assert (attack.probability, attack.variance) == (0.0, 0.0)
    with pytest.raises(PsofedError, match="--attack-probability describes an attack"):
        NodeOptions(attack_probability=0.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 4}, "--bits, --reach and --rounding belong together"),
        ({"rounding": "dithered"}, "--bits, --reach and --rounding belong together"),
        ({"multiplier": 2.0}, "--multiplier describes a private link: add --clip"),
        ({"bits": 0, "reach": 1.0}, "bits must be between 1 and 32; got 0"),
        ({"clip": 0.0}, "clip must be above 0"),
    ],
)
def test_options_of_a_link_that_do_not_fit_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(PsofedError, match=message):
        NodeOptions(**wrong)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            Links(up=Noisy(variance=0.1)),
            r'channel.up.kind = "noisy": a federation has real links; leave it out',
        ),
        (Links(down=Lossy(probability=0.1)), r'channel.down.kind = "lossy": .* leave \[channel.down\] out'),
        (Links(up=(Quantised(bits=4, reach=1.0), Private(clip=1.0))), "private and then quantised"),
    ],
)
def test_other_channels_are_refused_by_name(links: Links, message: str) -> None:
    with pytest.raises(NotCoveredError, match=message):
        RunSettings(scenario=SCENARIO.replace(channel=links))
