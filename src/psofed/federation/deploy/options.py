"""The options of the federation's commands; nothing of NumPy is imported, so that ``--help`` stays instant."""

from functools import partial
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.protocol.bounds import MAX_SEED
from psofed.federation.protocol.run_options import RunOptions, with_default

DEFAULT_PORT = 8883
_connection: Any = partial(option, group="Connection")
_ca: Any = partial(option, flag="--ca", default=None, metavar="FILE")
_port: Any = partial(option, default=None, low=0, high=65535)


class ServerOptions(Settings):
    """Settings of the server on this machine."""

    broker: str = option(
        default="",
        metavar="mqtts://HOST:PORT",
        text="use this MQTT 5 broker; by default mosquitto is started as a child of the server",
    )
    authority: Path | None = _ca(text="authority of the certificate of --broker, if it is not the federation's own")
    host: str = option(default="127.0.0.1", text="address on which mosquitto listens for nodes")
    port: int | None = _port(
        text=f"port of mosquitto; 0 picks a free one; by default the last one used, or {DEFAULT_PORT}"
    )
    federation: str = option(
        default="federation", metavar="NAME", text="name of this federation in the broker's topics"
    )
    metrics_port: int | None = _port(text="serve metrics for Prometheus on this port")
    metrics_host: str = option(default="127.0.0.1", text="address for --metrics-port")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metrics_port is None and self.metrics_host != type(self).metrics_host:
            raise PsofedError("--metrics-host is the address of the metrics: add --metrics-port.")
        if self.authority is not None and not self.broker:
            raise PsofedError("--ca is the authority of another broker: add --broker.")
        if self.broker and (self.port is not None or self.host != type(self).host):
            raise PsofedError("--host and --port are for mosquitto, which --broker replaces: leave them out.")


class ClientOptions(NodeOptions):
    """Settings of one node with its connection."""

    broker: str = _connection(metavar="mqtts://HOST:PORT", text="the broker of the federation")
    certificate: Path = _connection(
        metavar="FILE", text="key and certificate of this node: the file NAME.pem that `certs` has made"
    )
    authority: Path | None = _ca(
        group="Connection", text="authority of the broker's certificate, if it is not the federation's own"
    )
    federation: str = _connection(default="federation", metavar="NAME", text="name of the federation")
    home: Path | None = _connection(default=None, metavar="DIR", text="folder of this node; by default psofed-NAME")
    predict_port: int | None = _port(group="Connection", text="serve predictions on this port of 127.0.0.1")

    @property
    def folder(self) -> Path:
        """Where this node keeps its files."""
        return Path(f"psofed-{self.certificate.stem}") if self.home is None else self.home


class DemoOptions(Settings):
    """Settings of the demonstration on one machine."""

    nodes: int = option(default=4, low=2, high=64, text="nodes to start")
    rounds: int = option(default=20, low=1, text="rounds to run")
    seed: int = option(default=0, low=0, high=MAX_SEED, text="random seed of data, masks, participants and attack")
    samples_per_round: int = with_default(RunOptions, "samples_per_round", 1)
    deadline: float = with_default(RunOptions, "deadline", 60.0)
    in_process: bool = option(
        default=False, text="run the nodes within this process, as is done where no mosquitto is installed"
    )
