"""The options of the federation's commands; nothing of NumPy is imported, so that ``--help`` stays instant."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.protocol.bounds import MAX_SEED
from psofed.federation.protocol.run_options import ReplyLimits, RunOptions

DEFAULT_PORT = 8883
_CONNECTION = "Connection"


class CertificateOptions(Settings):
    """Certificates to create or renew."""

    hosts: Sequence[str] = option(
        default=(),
        flag="--host",
        metavar="NAME",
        repeat=True,
        text="name or address by which nodes reach the broker; repeatable",
    )
    nodes: int = option(default=0, low=0, text="number of node certificates to create: node-0, node-1, …")
    names: Sequence[str] = option(
        default=(),
        flag="--node",
        metavar="NAME",
        repeat=True,
        text="name of a node to create a certificate for; repeatable",
    )
    gateways: Sequence[str] = option(
        default=(),
        flag="--gateway",
        metavar="NAME[=N]",
        repeat=True,
        text="node that may have N clients (by default 100) and vouches for all of them; repeatable",
    )
    renew: Sequence[str] = option(
        default=(),
        metavar="NAME",
        repeat=True,
        text="node, `server` or `broker` to make a new certificate and key for, or `all`; repeatable",
    )

    def node_names(self) -> list[str]:
        """Return the names of the nodes to create, without gateways."""
        return [*(f"node-{k}" for k in range(self.nodes)), *self.names]

    def gateway_clients(self) -> dict[str, int]:
        """Return how many clients each gateway may have.

        Examples
        --------
        >>> CertificateOptions(gateways=("roof=20", "hall")).gateway_clients()
        {'roof': 20, 'hall': 100}
        """
        clients = {}
        for text in self.gateways:
            name, equals, number = text.partition("=")
            if equals and not (number.isascii() and number.isdigit() and int(number) > 1):
                raise InvalidValueError("--gateway", text, "NAME, or NAME=N with N at least 2 clients")
            clients[name] = int(number) if equals else ReplyLimits.max_clients
        return clients


class ServerOptions(Settings):
    """Settings of the server on this machine."""

    broker: str = option(
        default="",
        metavar="mqtts://HOST:PORT",
        text="use this MQTT 5 broker; by default mosquitto is started as a child of the server",
    )
    authority: Path | None = option(
        flag="--ca",
        default=None,
        metavar="FILE",
        text="authority of the certificate of --broker, if it is not the federation's own",
    )
    host: str = option(default="127.0.0.1", text="address on which mosquitto listens for nodes")
    port: int | None = option(
        default=None,
        low=0,
        high=65535,
        text=f"port of mosquitto; 0 picks a free one; by default the last one used, or {DEFAULT_PORT}",
    )
    federation: str = option(
        default="federation", metavar="NAME", text="name of this federation in the broker's topics"
    )
    metrics_port: int | None = option(default=None, low=0, high=65535, text="serve metrics for Prometheus on this port")
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

    broker: str = option(group=_CONNECTION, metavar="mqtts://HOST:PORT", text="the broker of the federation")
    certificate: Path = option(
        group=_CONNECTION,
        metavar="FILE",
        text="key and certificate of this node: the file NAME.pem that `certs` has made",
    )
    authority: Path | None = option(
        group=_CONNECTION,
        flag="--ca",
        default=None,
        metavar="FILE",
        text="authority of the broker's certificate, if it is not the federation's own",
    )
    federation: str = option(group=_CONNECTION, default="federation", metavar="NAME", text="name of the federation")
    home: Path | None = option(
        group=_CONNECTION, default=None, metavar="DIR", text="folder of this node; by default psofed-NAME"
    )

    @property
    def folder(self) -> Path:
        """Where this node keeps its files."""
        return Path(f"psofed-{self.certificate.stem}") if self.home is None else self.home


class DemoOptions(Settings):
    """Settings of the demonstration on one machine."""

    nodes: int = option(default=4, low=2, high=64, text="nodes to start")
    rounds: int = option(default=20, low=1, text="rounds to run")
    seed: int = option(default=0, low=0, high=MAX_SEED, text="random seed of data, masks, participants and attack")
    samples_per_round: int = dataclasses.field(default=1, metadata=RunOptions.options()["samples_per_round"].metadata)
    deadline: float = dataclasses.field(default=60.0, metadata=RunOptions.options()["deadline"].metadata)
    in_process: bool = option(
        default=False, text="run the nodes within this process, as is done where no mosquitto is installed"
    )


class ResumeOptions(Settings):
    """How far to continue."""

    rounds: int | None = option(
        default=None, low=0, text="new total number of rounds; 0: until stopped; by default unchanged"
    )
    ban_after: int | None = option(
        default=None,
        low=0,
        text="new limit of bad replies before a client is banned; a higher one readmits clients; 0: none",
    )


class RollbackOptions(Settings):
    """How far to go back."""

    to_round: int = option(low=0, text="round to return to")


class ReplaceOption(Settings):
    """Whether to replace earlier files."""

    force: bool = option(default=False, text="replace the result and checkpoints of an earlier run")


class FollowOption(Settings):
    """Whether to wait for the result."""

    detach: bool = option(default=False, text="do not wait for the run to end; `status` shows how it is doing")


class StatusOptions(Settings):
    """Choice of what to look at."""

    watch: bool = option(default=False, text="refresh every second until Ctrl-C")
    runs: bool = option(default=False, text="list all runs of this federation")
    audit: bool = option(default=False, text="list refused and revoked certificates and bad replies")
    health: bool = option(
        default=False, text="exit with code 0 if the server or node of this folder works, else 1; for containers"
    )


class NodeName(Settings):
    """One node."""

    name: str = option(positional=True, metavar="NAME", text="name of the node, as in `certs --node`")


class ExportOptions(Settings):
    """Where a model goes."""

    out: Path = option(metavar="FILE", text="file to write, .json")
    scaling: Path | None = option(
        default=None, metavar="DIR", text="folder of a client whose scaling to store with the model"
    )


class PredictOptions(Settings):
    """Which model predicts, and from what."""

    model: Path = option(metavar="FILE", text="file written by `export`, or the folder of a client")
    data: Path = option(metavar="TABLE", text="CSV or Parquet file with a header")
    features: Sequence[str] = option(
        default=(),
        metavar="A,B,C",
        text="columns of a model without column names, in the order of training; by default all",
    )
