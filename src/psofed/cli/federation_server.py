"""The federation's commands on the server: its keys, the server itself, and how it is doing."""

import contextlib
from collections.abc import Sequence

import typer

from psofed.cli.federation_common import HomeFolder, LogOptions, log, ready
from psofed.cli.inputs import Plugins
from psofed.cli.outputs import Output, print_json
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.protocol.run_options import ServerOptions


class CertificateOptions(Settings):
    """Certificates and keys to create."""

    hosts: Sequence[str] = option(
        default=(),
        flag="--host",
        metavar="NAME",
        repeat=True,
        text="name or address by which nodes reach the server; repeatable",
    )
    nodes: int = option(default=0, low=0, text="number of node keys to create, named node-0, node-1, …")
    names: Sequence[str] = option(
        default=(),
        flag="--node",
        metavar="NAME",
        repeat=True,
        text="name of a node key to create; repeatable",
    )
    gateways: Sequence[str] = option(
        default=(),
        flag="--gateway",
        metavar="NAME",
        repeat=True,
        text="name of a node that may have many clients and vouches for all of them; repeatable",
    )


class NodeName(Settings):
    """One node."""

    name: str = option(positional=True, metavar="NAME", text="name of the node, as in `certs --node`")


class WatchOption(Settings):
    """How long to look."""

    watch: bool = option(default=False, text="refresh every second until Ctrl-C")


def certs(options: CertificateOptions, home: HomeFolder) -> None:
    """Create missing certificates and keys: the authority, the server's certificate and the nodes' keys."""
    with ready():
        from psofed.federation.deploy.credentials import make_credentials

        names = [*(f"node-{k}" for k in range(options.nodes)), *options.names]
        folder = home.open(made=False).credentials.folder
        made = make_credentials(folder, list(options.hosts), names, options.gateways)
        typer.echo(f"authority    {made.authority}  (goes to every machine)")
        typer.echo(f"server       {made.certificate}, {made.key}  (stay here)")
        for path in made.public_keys():
            key = path.with_suffix(".key")
            where = f"{key}  (goes to that node alone)" if key.exists() else f"{path}  (the key is elsewhere)"
            typer.echo(f"{'gateway' if made.is_gateway(path.stem) else 'node':12} {where}")


def revoke(node: NodeName, home: HomeFolder) -> None:
    """Revoke a node's access immediately; create a new key with `certs --node NAME`.

    The old key is kept in credentials/revoked.
    """
    with ready():
        from psofed.federation.deploy.superlink import revoke_node

        told = revoke_node(home.open(), node.name)
        typer.echo(f"{node.name} no longer has access" + ("" if told else " (no server is running)"))


def server(options: ServerOptions, logs: LogOptions, home: HomeFolder, plugins: Plugins) -> None:
    """Run the server that nodes connect to, until Ctrl-C.

    Flower's SuperLink listens on this machine only. Nodes reach it through a front door that checks their keys.
    """
    with ready():
        logs.start()
        plugins.load()
        from psofed.federation.deploy.server import exposure_warning, serve

        place = home.open(made=False)
        host, port = options.host, options.port
        if port is None:
            port = int(place.read_server().get("port", 9092))
        warning = exposure_warning(host, port)
        if warning:
            log(warning)
        with contextlib.ExitStack() as stack:
            running = stack.enter_context(serve(place, host, port, log_json=logs.log_json))
            if options.metrics_port is not None:
                from psofed.federation.deploy.metrics import serve_metrics

                taken = stack.enter_context(
                    serve_metrics(running.home, options.metrics_port, options.metrics_host)
                )
                log(f"metrics for Prometheus at http://{options.metrics_host}:{taken}/metrics")
            keys = len(running.home.credentials.public_keys())
            log(f"listening on {running.address}; {keys} node keys let in; Ctrl-C stops")
            running.watch(resume=options.resume)


def status(home: HomeFolder, look: WatchOption, output: Output) -> None:
    """Show the server, its nodes and the progress of the run."""
    with ready():
        import sys
        import time

        from psofed.federation.deploy.status import federation_status, status_lines

        while True:
            found = federation_status(home.open())
            if output.as_json:
                print_json(found)
            else:
                clear = "\x1b[H\x1b[2J" if look.watch and sys.stdout.isatty() else ""
                typer.echo(clear + "\n".join(status_lines(found, time.time())))
            if not look.watch:
                return
            time.sleep(1.0)
