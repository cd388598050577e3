"""Private uploads, the settings of a node, and refusals by name."""

import numpy as np
import pytest
from stations import federate

from psofed import Links, NotCoveredError, PsofedError, Scenario
from psofed.channels import Lossy, Noisy, Private, Quantised
from psofed.federation.client.gateway import Gateway, TrainingRequest, TrainingResult
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.ready_made import attack_of, prepare
from psofed.federation.client.state import MemoryStore, NodeMemory
from psofed.federation.protocol.layout import ModelLayout
from psofed.federation.protocol.masks import DerivedMasks
from psofed.federation.protocol.messages import FULL, PART, ClientTask, Instruction, RunDescription
from psofed.federation.protocol.run_settings import RunSettings
from psofed.results.privacy import gaussian_epsilon

pytestmark = pytest.mark.federation

SCENARIO = Scenario(num_clients=3, dimension=4, num_participants=3, num_shared=2, iterations=6)


def test_a_private_client_clips_adds_noise_and_counts_what_it_spends() -> None:
    layout, private = ModelLayout.of({"0": np.zeros(400)}), Private(clip=1.0, multiplier=0.5, delta=1e-6)
    masks = DerivedMasks(seed=0, dimension=400, num_shared=400)

    def learn(request: TrainingRequest) -> TrainingResult:
        return TrainingResult(np.full(400, 1000.0), {}, {**request.records, "own": {"n": 1}}, 1)

    sent, store = [], MemoryStore()
    for n in (1, 2, 2, 3):  # the server asks for round 2 again
        task = ClientTask("", FULL if n == 1 else PART, 0, np.full(400, 3.0))
        instruction = Instruction("s", n, "pump", masks, layout.digest, (task,), layout=layout)
        sent.append(Gateway(learn, privacy=private).answer(instruction, store).replies[0])
        store = MemoryStore(held=NodeMemory.from_bytes(store.held.to_bytes(), "here"))  # the node is restarted
    assert np.array_equal(sent[1].values, sent[2].values)
    assert not np.array_equal(sent[0].values, sent[1].values)
    assert np.std(sent[0].values) == pytest.approx(0.5, rel=0.15)
    assert np.mean(sent[0].values) == pytest.approx(3.0 + 1.0 / 20, abs=0.1)
    assert [reply.metrics["privacy-uploads"] for reply in sent] == [1, 2, 2, 3]
    assert sent[-1].metrics["privacy-epsilon"] == gaussian_epsilon(0.5, 3, 1e-6)
    assert sent[-1].metrics["privacy-delta"] == 1e-6


def test_a_round_that_was_learned_without_privacy_is_not_sent_with_it() -> None:
    layout, masks = ModelLayout.of({"0": np.zeros(2)}), DerivedMasks(seed=0, dimension=2, num_shared=1)
    instruction = Instruction(
        "s", 1, "pump", masks, layout.digest, (ClientTask("", FULL, 0, np.zeros(2)),), layout=layout
    )
    store = MemoryStore()
    Gateway(lambda request: TrainingResult(request.model, {}, {}, 1)).answer(instruction, store)
    with pytest.raises(PsofedError, match="before uploads were private"):
        Gateway(lambda request: None, privacy=Private(clip=1.0)).answer(instruction, store)


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
    assert prepare(run, NodeOptions()).privacy == Private(clip=0.5)
    assert prepare(run, NodeOptions(clip=0.1, multiplier=2.0)).privacy == Private(clip=0.1, multiplier=2.0)
    byzantine = prepare(run, NodeOptions(clip=0.1, byzantine=True))
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
