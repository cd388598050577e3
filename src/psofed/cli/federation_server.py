"""The federation's commands on the server: its keys, the server itself, and how it is doing."""

import contextlib
from typing import Annotated

import typer

from psofed.cli.common import AsJson, Plugins, load_plugins, print_json
from psofed.cli.federation_common import DEFAULT_HOME, HomeFolder, open_home, ready, say
from psofed.cli.flags import flattened
from psofed.federation.protocol.run_options import ServerOptions


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (certs, revoke, flattened(server), status):
        app.command()(command)


def certs(
    home: HomeFolder = DEFAULT_HOME,
    hosts: Annotated[
        list[str],
        typer.Option(
            "--host", metavar="NAME", help="Name or address by which nodes reach the server; repeatable."
        ),
    ] = [],  # noqa: B006 - typer copies it
    nodes: Annotated[
        int, typer.Option("--nodes", min=0, help="Number of node keys to create: node-0, node-1, …")
    ] = 0,
    names: Annotated[
        list[str],
        typer.Option("--node", metavar="NAME", help="Create a key for the node of this name; repeatable."),
    ] = [],  # noqa: B006
) -> None:
    """Create missing credentials: the authority, the server's certificate and the nodes' keys."""
    with ready():
        from psofed.federation.deploy.credentials import make_credentials

        made = make_credentials(
            open_home(home).credentials.folder, hosts, [*(f"node-{k}" for k in range(nodes)), *names]
        )
        typer.echo(f"authority    {made.authority}  (goes to every machine)")
        typer.echo(f"server       {made.certificate}, {made.key}  (stay here)")
        for path in made.public_keys():
            key = path.with_suffix(".key")
            where = f"{key}  (goes to that node alone)" if key.exists() else f"{path}  (the key is elsewhere)"
            typer.echo(f"node         {where}")


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the node, as in `certs --node`.")],
    home: HomeFolder = DEFAULT_HOME,
) -> None:
    """Revoke a node's access immediately; `certs --node NAME` then makes a new key.

    The old key is kept in credentials/revoked.
    """
    with ready():
        from psofed.federation.deploy.superlink import revoke_node

        told = revoke_node(open_home(home), name)
        typer.echo(f"{name} no longer has access" + ("" if told else " (no server is running)"))


def server(options: ServerOptions, home: HomeFolder = DEFAULT_HOME, plugins: Plugins = []) -> None:  # noqa: B006
    """Run the server until Ctrl-C: a SuperLink on loopback, and the front door that nodes connect to."""
    with ready():
        load_plugins(plugins)
        from psofed.common.files import read_json
        from psofed.federation.deploy.server import exposure_warning, serve

        place = open_home(home)
        host, port = options.host, options.port
        if port is None:
            port = int(read_json(place.server_info)["port"]) if place.server_info.exists() else 9092
        warning = exposure_warning(host, port)
        if warning:
            say(warning)
        with contextlib.ExitStack() as stack:
            running = stack.enter_context(serve(place, host, port))
            if options.metrics_port is not None:
                from psofed.federation.deploy.metrics import serve_metrics

                taken = stack.enter_context(
                    serve_metrics(running.home, options.metrics_port, options.metrics_host)
                )
                say(f"metrics for Prometheus at http://{options.metrics_host}:{taken}/metrics")
            keys = len(running.home.credentials.public_keys())
            say(f"listening on {running.address}; {keys} node keys let in; Ctrl-C stops")
            running.watch()


def status(
    home: HomeFolder = DEFAULT_HOME,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show whether the server runs, which nodes are connected, and the progress of the run."""
    with ready():
        import sys
        import time

        from psofed.federation.deploy.status import federation_status, status_lines

        while True:
            found = federation_status(open_home(home))
            if as_json:
                print_json(found)
            else:
                clear = "\x1b[H\x1b[2J" if watch and sys.stdout.isatty() else ""
                typer.echo(clear + "\n".join(status_lines(found, time.time())))
            if not watch:
                return
            time.sleep(1.0)
