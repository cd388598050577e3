"""The node process: one link, one node, and the samples that it reads from a broker."""

import contextlib
import dataclasses
import threading
from pathlib import Path

from psofed.common.files import only_one
from psofed.common.logs import log
from psofed.federation.client.mqtt import CLIENT_COLUMN, MqttFeed, MqttTopic
from psofed.federation.client.node import serve
from psofed.federation.client.ready_made import attack_of, open_data, ready_made_node
from psofed.federation.client.sources import Position, SharedTable
from psofed.federation.deploy.home import Home, notify
from psofed.federation.deploy.options import ClientOptions
from psofed.federation.protocol.corruption import check_rehearsal
from psofed.federation.protocol.layout import listed
from psofed.federation.transport.certificates import Identity
from psofed.federation.transport.mqtt import Endpoint, MqttLink


def run_node(options: ClientOptions) -> None:
    """Work until interrupted; a PsofedError says what only the operator can repair."""
    endpoint = Endpoint.parse(options.broker, options.authority, options.federation)
    identity = Identity(options.certificate)
    if options.byzantine and options.attack is not None and (attack := attack_of(options)) is not None:
        check_rehearsal(attack)
    feed = None
    if options.is_mqtt:
        options, feed = _with_feed(options)
    _check_data(options)
    home = Home(options.folder)
    with (
        only_one(home.folder / "lock", f"another node works in {home.folder} already; choose another --home"),
        contextlib.ExitStack() as stack,
    ):
        if not options.data:
            log.info("Without --data this node learns made-up samples, in runs with --synthetic only.")
        if options.byzantine:
            log.info("This node is Byzantine: it poisons what it uploads.")
        log.info("Node %s works for %s in %s. Stop it with Ctrl-C.", identity.name, endpoint, home.folder)
        if feed is not None:
            feed.start(f"psofed-{identity.name}")
            stack.callback(feed.stop)
        if options.predict_port is not None:
            from psofed.federation.deploy.predictions import PATH, serve_predictions

            port = stack.enter_context(serve_predictions(home.folder, options.predict_port))
            log.info("Predictions at http://127.0.0.1:%d%s", port, PATH)
        node = ready_made_node(identity.name, options, home.folder / "state")
        link = MqttLink(endpoint, identity)
        notify("READY=1")
        stack.callback(notify, "STOPPING=1")
        serve(node, link, threading.Event(), home.beat)


def _with_feed(options: ClientOptions) -> tuple[ClientOptions, MqttFeed]:
    """Return the options with the table that MQTT messages are written to, and what writes them."""
    place = MqttTopic.parse(options.data)
    if options.client is not None:
        place = place.of_client(options.client)
    path, columns = options.folder / "mqtt.csv", [*options.features, str(options.target_column)]
    feed = MqttFeed(place, path, columns, options.time_column or "", lambda text: log.info("%s", text))
    column = CLIENT_COLUMN if place.has_clients else None
    return options.replace(data=str(path), client=None, client_column=column, time_column=None), feed


def _check_data(options: ClientOptions) -> None:
    """Look at the samples: a mistake should show here, not in the first round. A missing file is waited for."""
    if not options.data:
        return
    path, source = Path(options.data), open_data(options)
    if not path.exists():
        log.warning("--data %s: no such file yet; waiting for it", path)
        return
    if not (header := source.open().header):
        log.info("%s is still empty.", path)
        return
    log.info("Columns: %s. The run names those to learn from; they are scaled online.", listed(header))
    if options.is_gateway:
        names = SharedTable(source).names()
        log.info("A gateway for %d clients%s.", len(names), f": {listed(names)}" if names else ", as yet")
    elif options.client is not None and not source.read(Position(), 1):
        names = SharedTable(dataclasses.replace(source, client="")).names()
        log.info("%s has no row of client %s yet; it has rows of %s.", path, options.client, listed(names))
