"""Private uploads, the settings of a node, and refusals by name."""

import numpy as np
import pytest
from stations import federate

from psofed import Links, NotCoveredError, PsofedError, Scenario
from psofed.channels import Lossy, Noisy, Private, Quantised
from psofed.federation.client.gateway import PRIVACY, make_private, note_download, read_privacy
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.ready_made import attack_of, prepare
from psofed.federation.client.state import ClientMemory, NodeMemory
from psofed.federation.protocol.messages import LEARNED, Reply, RunDescription
from psofed.federation.protocol.run_settings import RunSettings
from psofed.results.privacy import gaussian_epsilon

pytestmark = pytest.mark.federation

SCENARIO = Scenario(num_clients=3, dimension=4, num_participants=3, num_shared=2, iterations=6)


def test_a_private_client_clips_adds_noise_and_counts_what_it_spends() -> None:
    channel, entries = Private(clip=1.0, multiplier=0.5, delta=1e-6), np.arange(400)
    records: dict = {}
    server, far = np.full(400, 3.0), Reply(LEARNED, "", np.full(400, 1000.0), 1)
    sent = []
    for n in (1, 2, 2, 3):  # the server asks for round 2 again
        records = {PRIVACY: note_download(records, 400, entries, server, f"0 {n}")}
        if n == 2:  # the node is restarted
            memory = NodeMemory("s", "pump", {"": ClientMemory(None, records)})
            records = NodeMemory.from_bytes(memory.to_bytes(), "here").of("").records
        sent.append(make_private(channel, far, read_privacy(records, 400), entries))
    assert np.array_equal(sent[1].values, sent[2].values)
    assert not np.array_equal(sent[0].values, sent[1].values)
    assert np.std(sent[0].values) == pytest.approx(0.5, rel=0.15)
    assert np.mean(sent[0].values) == pytest.approx(3.0 + 1.0 / 20, abs=0.1)
    spent = sent[-1].metrics
    assert spent["privacy-uploads"] == 3
    assert spent["privacy-epsilon"] == gaussian_epsilon(0.5, 3, 1e-6)
    assert spent["privacy-delta"] == 1e-6


def test_a_run_of_ready_made_nodes_is_private_and_reports_it() -> None:
    links = Links(up=(Private(clip=0.5, multiplier=0.2),))
    settings = RunSettings(scenario=SCENARIO.replace(channel=links), synthetic=True, min_nodes=3, newcomers="zeros")
    _, server = federate(settings, {f"n{k}": NodeOptions(partition=k) for k in range(3)})
    for metrics in server.state.history[-1]["metrics"].values():
        assert metrics["privacy-epsilon"] == gaussian_epsilon(0.2, 6, 1e-5)
        assert metrics["privacy-uploads"] == 6


def test_what_a_node_is_told_comes_before_what_the_run_says() -> None:
    settings = RunSettings(scenario=SCENARIO.replace(channel=Links(up=Private(clip=0.5))), synthetic=True)
    run = RunDescription("s", settings.to_mapping())
    assert prepare(run, NodeOptions())[0].privacy == Private(clip=0.5)
    assert prepare(run, NodeOptions(clip=0.1, multiplier=2.0))[0].privacy == Private(clip=0.1, multiplier=2.0)
    byzantine = prepare(run, NodeOptions(clip=0.1, byzantine=True))[0]
    assert byzantine.corruption is not None


def test_an_attack_of_probability_or_strength_0_reaches_the_node() -> None:
    node = NodeOptions(byzantine=True, attack="gaussian", attack_probability=0.0, attack_strength=0.0)
    attack = attack_of(node)
    assert (attack.probability, attack.variance) == (0.0, 0.0)
    with pytest.raises(PsofedError, match="--attack-probability describes an attack"):
        NodeOptions(attack_probability=0.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"multiplier": 2.0}, "--multiplier describes private uploads: add --clip"),
        ({"clip": 0.0}, "clip must be above 0"),
    ],
)
def test_options_of_privacy_that_do_not_fit_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(PsofedError, match=message):
        NodeOptions(**wrong)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (Links(up=Noisy(variance=0.1)), r"channel.up = \['noisy'\]: a federation has real links"),
        (Links(up=Quantised(bits=4, reach=1.0)), r"channel.up = \['quantised'\]: a federation has real links"),
        (Links(down=Lossy(probability=0.1)), r'channel.down.kind = "lossy": .* leave \[channel.down\] out'),
    ],
)
def test_other_channels_are_refused_by_name(links: Links, message: str) -> None:
    with pytest.raises(NotCoveredError, match=message):
        RunSettings(scenario=SCENARIO.replace(channel=links))
