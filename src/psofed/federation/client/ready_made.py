"""The ready-made node: online regression on a node's own samples, as ``psofed federation client`` runs it.

What is to be done is in the run description. What concerns one machine comes from that machine alone. So nobody who
starts a run can name a file on somebody else's machine, or make it run code.
"""

import contextlib
import re
from pathlib import Path

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.files import write_atomically
from psofed.federation.client.gateway import Gateway, Rehearsal
from psofed.federation.client.node import Node
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.online import Learners, OnlineRegression
from psofed.federation.client.sources import SharedTable, Source, SyntheticSource, TableSource
from psofed.federation.protocol.bounds import READY_MADE_ENTRIES
from psofed.federation.protocol.messages import RunDescription
from psofed.federation.protocol.run_settings import RunSettings
from psofed.parts.base import Attack
from psofed.parts.channels.built_in import Private
from psofed.scenario.accepted import as_part

RUN_FILE = "run.json"
"""In the folder of a node's memory: the description of its run."""


def ready_made_node(name: str, options: NodeOptions, folder: Path | None = None) -> Node:
    """Return a node that learns from the samples that `options` name, and keeps its memory in `folder`."""

    def begin(run: RunDescription) -> Gateway:
        gateway = prepare(run, options)
        if folder is not None:
            with contextlib.suppress(PsofedError):  # a full disk; only predictions with features need it
                write_atomically(folder / RUN_FILE, run.to_bytes())
        return gateway

    return Node(name, begin, folder, READY_MADE_ENTRIES)


def prepare(run: RunDescription, options: NodeOptions) -> Gateway:
    """Return how a node answers in a run; a PsofedError says why it cannot take part."""
    planned = options.byzantine and options.attack is None
    settings = RunSettings.for_client(run.settings, attack=planned)
    scenario = settings.scenario
    attack = attack_of(options, scenario.attack)
    features = None
    if scenario.model.kind != "linear":
        features = scenario.model.make_features(settings.input_dimension, scenario.dimension)

    def make(samples: Source) -> OnlineRegression:
        return OnlineRegression(samples, scenario.common_stepsize, settings.samples_per_round, features=features)

    learners = Learners(_open_source(options, settings), make)
    return Gateway(
        learners.learn,
        catch_up=True,
        clients=learners.names,
        privacy=_privacy_of(options, settings),
        corruption=None if attack is None else Rehearsal(attack, settings.seed),
        arrived=None if settings.samples_per_round else learners.learn_arrived,  # samples may be counted out by round
    )


def attack_of(options: NodeOptions, planned: Attack | None = None) -> Attack | None:
    """Return the attack that a node rehearses: the one its settings name, the `planned` one, or the paper's."""
    if not options.byzantine:
        return None
    attack: Attack | None = planned
    if attack is None or options.attack is not None:
        attack = as_part("attack", {"kind": options.attack or "gaussian", "num_byzantine": 1})
    given = {"probability": options.attack_probability, attack.strength_field(): options.attack_strength}
    changes = {name: value for name, value in given.items() if value is not None}
    return attack.replace(num_byzantine=1, byzantine_set="fixed", **changes)


def open_data(options: NodeOptions) -> TableSource:
    """Return the table that a node's settings name."""
    path = Path(options.data)
    if re.fullmatch(r"[\w.]+:\w+", path.name) and not path.exists():
        gone = "a CSV file, or mqtt://HOST:PORT/TOPIC; a Python generator must append its samples to a CSV file"
        raise InvalidValueError("data", path.name, gone)
    columns = options.target_column or "", options.client_column or "", options.client or ""
    return TableSource(path, tuple(options.features), *columns)


def _privacy_of(options: NodeOptions, settings: RunSettings) -> Private | None:
    """Return how uploads are made private: as the node's own settings say, otherwise as the run's scenario says."""
    names = ("clip", "multiplier", "delta")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if given:
        return Private(**given)
    links = settings.scenario.channel
    return next((link for link in links.up if isinstance(link, Private)), None) if links is not None else None


def _open_source(options: NodeOptions, settings: RunSettings) -> Source | SharedTable:
    """Return a node's samples, or the table of a gateway."""
    if settings.synthetic and options.is_gateway:
        raise PsofedError("this node is a gateway, whose clients have rows of their own: a synthetic run has none")
    if settings.synthetic:
        return SyntheticSource(settings.scenario, options.partition, settings.seed)
    if not options.data:
        raise PsofedError("this node has no data: start it with `psofed federation client --data …`")
    source = open_data(options)
    return SharedTable(source) if options.is_gateway else source
