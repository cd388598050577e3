"""``psofed federation client``: one node."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from psofed.cli.federation_common import LogOptions, log, ready
from psofed.cli.inputs import Plugins
from psofed.federation.protocol.node_options import NodeOptions

if TYPE_CHECKING:
    from psofed.federation.client.mqtt import MqttFeed

_COUNTED = 1000  # rows of a file that are counted before the first round


def client(options: NodeOptions, logs: LogOptions, plugins: Plugins) -> None:
    """Run one client of a federation, a node, until Ctrl-C; with --client-column alone, a gateway for many clients.

    It learns from its own data, which stay on this machine, and exchanges parameters with the server.
    """
    with ready():
        from psofed.federation.client.gateway import NODE_NUMBER
        from psofed.federation.deploy.app import ReadyMadeApp
        from psofed.federation.deploy.node import LongLivedNode
        from psofed.federation.flower import TESTED_MINORS, untested_version

        logs.start()
        plugins.load()
        _check_attack(options)
        feed = None
        if options.is_mqtt:
            options, feed = _with_feed(options)
        options = _with_data(options)
        config = {**options.to_node_config(), "psofed-state": str((options.folder / "state").resolve())}
        node = LongLivedNode(
            options.server, options.key, options.authority, options.folder, config, ReadyMadeApp(), log
        )  # it refuses missing and unreadable keys
        if not options.data:
            log("Without --data this node learns made-up samples, in runs with --synthetic only.")
        if options.byzantine:
            log("This node is Byzantine: it poisons what it uploads.")
        log(f"Node {options.key.stem} works for {options.server} in {options.folder}. Stop it with Ctrl-C.")
        untested = untested_version()
        if untested is not None:
            log(
                f"psofed was tested with Flower {', '.join(TESTED_MINORS)}, not {untested}: "
                "this node runs as Flower's own, slower SuperNode."
            )
        with contextlib.ExitStack() as stack:
            if options.predict_port is not None:
                from psofed.federation.deploy.predictions import PATH, serve_predictions

                port = stack.enter_context(serve_predictions(options.folder, options.predict_port))
                log(f"Predictions at http://127.0.0.1:{port}{PATH}")
            if feed is not None:
                feed.start(f"psofed-{node.settings[NODE_NUMBER]}")
                stack.callback(feed.stop)
            if options.supernode or untested is not None:
                _run_supernode(options)
            else:
                node.run()


def _with_feed(options: NodeOptions) -> "tuple[NodeOptions, MqttFeed]":
    """Return the options with the table that MQTT messages are written to, and what writes them."""
    from psofed.federation.client.mqtt import CLIENT_COLUMN, MqttFeed, MqttTopic

    place = MqttTopic.parse(options.data)
    if options.client is not None:
        place = place.of_client(options.client)
    path, columns = options.folder / "mqtt.csv", [*options.features, str(options.target_column)]
    feed = MqttFeed(place, path, columns, options.time_column or "", log)
    column = CLIENT_COLUMN if place.has_clients else None
    return options.replace(data=str(path), client=None, client_column=column, time_column=None), feed


def _with_data(options: NodeOptions) -> NodeOptions:
    """Return the options with the full path of the table; a mistake should show here, not in the first round."""
    from psofed.common.errors import PsofedError
    from psofed.data.frames import refuse_toml
    from psofed.federation.client.columns import TableSource
    from psofed.federation.client.online import BACKLOG
    from psofed.federation.client.shared_table import SharedTable
    from psofed.federation.client.sources import GeneratorSource, Position, open_source
    from psofed.federation.deploy.app import open_data
    from psofed.render.numbers import listed

    if not options.data:
        return options
    if not options.describes_table and isinstance(
        source := open_source(options.data, dimension=1), GeneratorSource
    ):
        source.load()
        return options
    path = Path(options.data)
    if not path.exists():
        raise PsofedError(f"--data {path}: no such file or folder.")
    refuse_toml(path)
    options = options.replace(data=str(path.resolve()))
    source = open_data(options, 0)
    assert isinstance(source, TableSource)  # generators have returned above
    if not source.open().header:
        log(f"{path} has no .parquet file yet." if path.is_dir() else f"{path} is still empty.")
        return options
    features, target = source.chosen()
    shown = ", ".join(features[:8]) + (f", … ({len(features)})" if len(features) > 8 else "")
    log(f"Features: {shown}. Target: {target}. Both are scaled online. A run may name other columns.")
    if options.is_gateway:
        names = SharedTable(source).names()
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        log(f"A gateway for {len(names)} clients{f': {shown}' if names else ', as yet'}.")
        return options
    there = len(source.read(Position(), _COUNTED))
    if options.client is not None and not there:
        names = SharedTable(dataclasses.replace(source, client="")).names()
        log(f"{path} has no row of client {options.client} yet; it has rows of {listed(names)}.")
    if there > BACKLOG:
        number = f"{there:,}" if there < _COUNTED else f"at least {there:,}"
        log(
            f"{number} rows are there already: a run takes them all at once unless it has --samples-per-round."
        )
    return options


def _check_attack(options: NodeOptions) -> None:
    """Refuse an attack that a node cannot rehearse; a mistake should show here, not in the first round."""
    if options.attack is None:
        return
    from psofed.federation.client.attacks import rehearse
    from psofed.federation.deploy.app import attack_of

    attack = attack_of(options)
    if attack is not None and not attack.poisons_samples():
        rehearse(attack)


def _run_supernode(options: NodeOptions) -> None:
    from psofed.federation.deploy.processes import Supervisor
    from psofed.federation.deploy.supernode import keep_node_running, start_supernode

    with Supervisor(options.folder / "logs") as supervisor:
        keep_node_running(
            lambda: start_supernode(
                options.server,
                options.folder,
                options.key,
                options.authority,
                options.to_node_config(),
                supervisor,
            ),
            log,
        )
