"""The federation's commands on the server: its certificates, the server itself, and how it is doing."""

import contextlib
import sys
import time

import typer

from psofed.cli.federation.common import HomeFolder, LogOptions, log, ready
from psofed.cli.inputs import Plugins
from psofed.cli.outputs import Output, print_json
from psofed.federation.deploy.options import CertificateOptions, NodeName, ServerOptions, StatusOptions


def certs(options: CertificateOptions, home: HomeFolder) -> None:
    """Create missing certificates: the authority, the broker's, the server's and the nodes'; renew them with --renew.

    Each node gets one file, NAME.pem, with its key and certificate.
    """
    with ready():
        from psofed.federation.transport.certificates import Certificates

        certificates = Certificates(home.open(made=False).credentials)
        new = certificates.make(options.hosts, options.node_names(), options.gateway_clients())
        renewed = certificates.renew(options.renew)
        typer.echo(
            f"authority  {certificates.authority_key}  (keep it safe; it makes, renews and revokes certificates)"
        )
        for name, record in sorted(certificates.records().items()):
            word = "revoked" if record.revoked else f"until {record.until.date()}"
            mark = "  new" if name in new else "  renewed" if name in renewed else ""
            many = f", {record.clients} clients" if record.clients > 1 else ""
            path = certificates.bundle(name)
            typer.echo(f"{name:10} {word}{many}{f'  {path}' if path.exists() else ''}{mark}")
        if names := [name for name in (*new, *renewed) if name in certificates.names()]:
            typer.echo(f"Give each node its own file alone: {names[0]}.pem{', …' if names[1:] else ''}")


def revoke(node: NodeName, home: HomeFolder) -> None:
    """Revoke a node's access immediately and for good; a new certificate needs another name."""
    with ready():
        from psofed.federation.deploy.home import add_record
        from psofed.federation.transport.certificates import Certificates

        place = home.open()
        complete = Certificates(place.credentials).revoke([node.name])
        add_record(place.audit, "revoked", node=node.name)
        served = "" if place.is_served else " (no server is running)"
        typer.echo(f"{node.name} no longer has access{served}")
        if not complete:
            typer.echo(
                "ca.key is not here: the server refuses the node, but another broker must be told; bring ca.key and "
                "revoke again"
            )


def server(options: ServerOptions, logs: LogOptions, home: HomeFolder, plugins: Plugins) -> None:
    """Run the server until Ctrl-C: an MQTT broker, and the runs that `run` and `resume` ask for.

    It continues a run that an earlier server has left, unless `stop` was asked for meanwhile.
    """
    with ready():
        logs.start()
        plugins.load()
        from psofed.federation.deploy.home import notify
        from psofed.federation.deploy.server import serve

        place = home.open(made=False)
        with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
            running = stack.enter_context(serve(place, options))
            if options.metrics_port is not None:
                from psofed.federation.deploy.metrics import serve_metrics

                port = stack.enter_context(serve_metrics(place, options.metrics_port, options.metrics_host))
                log(f"metrics for Prometheus at http://{options.metrics_host}:{port}/metrics")
            nodes = len(running.certificates.names())
            log(f"serving {running.hub.endpoint} for {nodes} node{'s' * (nodes != 1)}; Ctrl-C stops")
            notify("READY=1")
            stack.callback(notify, "STOPPING=1")
            running.work()


def status(home: HomeFolder, options: StatusOptions, output: Output) -> None:
    """Show the server, its nodes and the progress of the run; or all runs, or the audit."""
    with ready(network=False):
        from psofed.federation.deploy.home import describe_record, read_records
        from psofed.federation.deploy.status import federation_status, status_lines

        place = home.open()
        if options.health:
            healthy = place.is_healthy()
            typer.echo("healthy" if healthy else "not healthy")
            raise typer.Exit(0 if healthy else 1)
        if options.runs or options.audit:
            records = read_records(place.audit if options.audit else place.runs)
            if output.as_json:
                print_json(records)
            else:
                typer.echo("\n".join(map(describe_record, records)) or "none")
            return
        while True:
            current = federation_status(place)
            if output.as_json:
                print_json(current)
            else:
                clear = "\x1b[H\x1b[2J" if options.watch and sys.stdout.isatty() else ""
                typer.echo(clear + "\n".join(status_lines(current)))
            if not options.watch:
                return
            time.sleep(1.0)
