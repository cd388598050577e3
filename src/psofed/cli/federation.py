"""``psofed federation``: PSO-Fed with real clients over a real network."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from psofed.cli.flags import Given
from psofed.cli.inputs import Plugins, ScenarioFile
from psofed.cli.outputs import Output, PlotOutput, print_json, progress
from psofed.common.errors import InvalidValueError, PsofedError, missing_package
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.deploy.options import ClientOptions, DemoOptions, ServerOptions
from psofed.federation.protocol.run_options import ReplyLimits, RunOptions

if TYPE_CHECKING:
    from psofed.federation.deploy.home import Home, RunRequest
    from psofed.scenario import Scenario

HELP = "Run PSO-Fed with real clients: demo on one machine, or certs, server, client and run on several."
_PACKAGES = ("paho.mqtt", "cryptography")


_names: Any = partial(option, default=(), metavar="NAME", repeat=True)


class HomeFolder(Settings):
    """Where the files of a federation are."""

    home: Path = option(
        default=Path("psofed-federation"), metavar="DIR", text="folder with all files of this federation"
    )

    def open(self, *, made: bool = True) -> "Home":
        """Return the files, which a command may or may not expect to be `made` already."""
        from psofed.federation.deploy.home import Home

        if made and not self.home.is_dir():
            raise PsofedError(f"there is no federation in {self.home}; name its folder with --home")
        return Home(self.home)


class LogOptions(Settings):
    """How a command that runs for long writes its log."""

    log_json: bool = option(default=False, text="write log lines as JSON")

    def start(self) -> None:
        """Write log lines from now on."""
        from psofed.common.logs import write_log_lines

        write_log_lines("psofed.federation", as_json=self.log_json)


class CertificateOptions(Settings):
    """Certificates to create or renew."""

    hosts: Sequence[str] = _names(flag="--host", text="name or address by which nodes reach the broker; repeatable")
    nodes: int = option(default=0, low=0, text="number of node certificates to create: node-0, node-1, …")
    names: Sequence[str] = _names(flag="--node", text="name of a node to create a certificate for; repeatable")
    gateways: Sequence[str] = _names(
        flag="--gateway",
        metavar="NAME[=N]",
        text="node that may have N clients (by default 100) and vouches for all of them; repeatable",
    )
    renew: Sequence[str] = _names(
        text="node, `server` or `broker` to make a new certificate and key for, or `all`; repeatable"
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


class FollowOption(Settings):
    """Whether to wait for the result."""

    detach: bool = option(default=False, text="do not wait for the run to end; `status` shows how it is doing")


class StartOptions(FollowOption):
    """Whether to replace earlier files, and to wait."""

    force: bool = option(default=False, text="replace the result and checkpoints of an earlier run")


class ResumeOptions(FollowOption):
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


class StatusOptions(Settings):
    """Choice of what to look at."""

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


@contextlib.contextmanager
def ready(*, network: bool = True) -> Iterator[None]:
    """Check that what a `network` needs is installed, and let SIGTERM end a command as Ctrl-C does."""
    from importlib.util import find_spec

    for package in _PACKAGES if network else ():
        if find_spec(package.partition(".")[0]) is None:
            raise missing_package("a federation", package, "federation")
    os.umask(0o077)  # whatever is written is for its owner only

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def say(text: str) -> None:
    """Tell a person something, beside the command's own output."""
    print(text, file=sys.stderr, flush=True)


class DemoHome(HomeFolder):
    """Where the files of the demonstration are."""

    home: Path = option(default=Path("psofed-demo"), metavar="DIR", text="folder with all files of the demo")


def demo(options: DemoOptions, home: DemoHome, output: PlotOutput) -> None:
    """Run a federation with one Byzantine node on this machine: real processes if mosquitto is installed."""
    with ready(network=False):
        from psofed.federation.deploy.demo import demo_settings, run_demo

        output.check()
        settings, place = demo_settings(options), home.open(made=False)
        follower = _Follower()
        with progress("federation", "rounds") as follower.update:
            result = run_demo(settings, place, say, follower, in_process=options.in_process)
        _show_outcome(result, place, output)


def run(
    source: ScenarioFile, options: Given[RunOptions], home: HomeFolder, start: StartOptions, output: PlotOutput
) -> None:
    """Run a scenario on the server of this machine; each iteration is a round.

    A scenario with a table, such as the plan that `psofed advise --out plan.toml` writes, gives the columns.
    Unless options say otherwise, its nodes learn one row per round, and the run waits for all participants.
    """
    with ready(network=False):
        from psofed.federation.deploy.runs import submit
        from psofed.federation.protocol.run_settings import RunSettings
        from psofed.render.numbers import counted

        output.check()
        scenario, remarks = _with_rule(source, bool(options.values.get("synthetic")))
        settings = RunSettings.planned(scenario, options.values, fixed_length="iterations" in source.values)
        place = home.open()
        request = submit(place, settings, force=start.force)
        if scenario.attack is not None:
            kind = scenario.attack.kind
            remarks.append(f'Nodes started with --byzantine rehearse the attack "{kind}"; all others are honest.')
        if scenario.data.rows is not None:
            rows, columns = settings.samples_per_round, settings.columns or "without names"
            pace = f"{counted(rows, 'row')} a round" if rows else "all rows that have arrived"
            remarks.append(f"columns {columns}; {pace}")
        if settings.leave_out:
            remarks.append(f"never asked: {', '.join(settings.leave_out)}")
        _follow(place, request, output, remarks, detach=start.detach)


def _with_rule(source: ScenarioFile, synthetic: bool) -> "tuple[Scenario, list[str]]":
    """Return the scenario of a run and remarks; unless a rule is named, the federation's own default is used."""
    from psofed.federation.server.step import Combination
    from psofed.parts.aggregations.by_entry import Mean
    from psofed.scenario.file import refuse_table

    assert source.file is not None  # it is required
    refuse_table(source.file, "a scenario: `psofed advise --data TABLE --out plan.toml` makes one from it")
    scenario = source.read(open_data=False)
    if synthetic:  # to be compared with the simulation of the same scenario
        return scenario, []
    if not source.gives("aggregation"):
        rule: Any = Combination(pre_aggregation=scenario.pre_aggregation).rule
        remark = f'The scenario names no aggregation rule: using "{rule.kind}", which resists a Byzantine node.'
        return scenario.replace(aggregation=rule), [remark]
    remark = (
        'WARNING: with aggregation = "mean" one Byzantine node can lead the model away; '
        "remove the line for a robust rule."
    )
    return scenario, [remark] if isinstance(scenario.aggregation, Mean) else []


def resume(options: ResumeOptions, home: HomeFolder, output: PlotOutput, plugins: Plugins) -> None:
    """Continue the last run from its last completed round."""
    with ready(network=False):
        plugins.load()
        from psofed.federation.deploy.runs import resume as ask_to_resume

        output.check()
        place = home.open()
        request = ask_to_resume(place, rounds=options.rounds, ban_after=options.ban_after)
        _follow(place, request, output, detach=options.detach)


def rollback(options: RollbackOptions, home: HomeFolder) -> None:
    """Return to the checkpoint of an earlier round; continue from there with `resume`.

    Everything learned since is discarded, by the clients too: each receives the full model when it is next selected.
    """
    with ready(network=False):
        from psofed.federation.deploy.runs import rollback as roll_back

        place = home.open()
        done = roll_back(place, options.to_round)
        typer.echo(f"back at round {done}; {place.command('resume')} continues from there")


def stop(home: HomeFolder) -> None:
    """Stop the current run; continue it with `resume`."""
    with ready(network=False):
        from psofed.federation.deploy.home import STOPPED
        from psofed.federation.deploy.runs import stop as stop_run

        place = home.open()
        word, done = stop_run(place)
        after = f"after round {done}" if done else "before the first round was completed"
        hint = f"; {place.command('resume')} continues it" if word == STOPPED else " already"
        typer.echo(f"{word} {after}{hint}")


def export(options: ExportOptions, home: HomeFolder) -> None:
    """Write the server's model after its last completed round to a file."""
    with ready(network=False):
        from psofed.federation.deploy.export import describe, from_client, from_server, save_model

        client = None if options.scaling is None else from_client(options.scaling)
        model = from_server(home.open(), client)
        save_model(model, options.out)
        typer.echo(f"{options.out}: {describe(model)}")


def client(options: ClientOptions, logs: LogOptions, plugins: Plugins) -> None:
    """Run one client of a federation, a node, until Ctrl-C; with --client-column alone, a gateway for many clients.

    It learns from its own data, which stay on this machine, and exchanges parameters with the server.
    """
    with ready(), contextlib.suppress(KeyboardInterrupt):
        logs.start()
        plugins.load()
        from psofed.federation.deploy.node import run_node

        run_node(options)


def predict(options: PredictOptions, output: Output) -> None:
    """Predict the target for every row of a table, in its own unit if the model comes with a scaling."""
    with ready(network=False):
        from psofed.federation.deploy.export import describe, load_model, predict_rows

        loaded = load_model(options.model)
        say(describe(loaded))
        predictions = list(predict_rows(loaded, options.data, tuple(options.features)))
        if output.as_json:
            print_json({"predictions": predictions})
            return
        for value in predictions:
            typer.echo(f"{value:.10g}")


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
    with ready(), contextlib.suppress(KeyboardInterrupt):
        logs.start()
        plugins.load()
        from psofed.federation.deploy.server import run_server

        run_server(home.open(made=False), options)


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
        current = federation_status(place)
        if output.as_json:
            print_json(current)
        else:
            typer.echo("\n".join(status_lines(current)))


def _follow(
    home: "Home", request: "RunRequest", output: PlotOutput, remarks: Sequence[str] = (), *, detach: bool
) -> None:
    from psofed.federation.deploy.runs import follow

    settings = request.run_settings()
    for remark in remarks:
        say(remark)
    if detach:
        say(f"run submitted; {home.command('status')} shows how it is doing")
        return
    clients = "a client" if settings.min_nodes == 1 else f"{settings.min_nodes} clients"
    say(f"run submitted, waiting for {clients}, at most {settings.wait_for_nodes:g} s")
    follower = _Follower()
    with progress("federation", "rounds") as follower.update:
        result = follow(home, request, follower, say)
    _show_outcome(result, home, output)
    if not result["examples"]:
        say("nobody has learned anything: no reply with a sample was accepted")
        raise typer.Exit(1)


class _Follower:
    """Shows each round: its line, and what its nodes and the server say of their work, once until it changes."""

    def __init__(self) -> None:
        self.update: Any = None
        self._said: dict[str, str] = {}

    def __call__(self, status: dict[str, Any]) -> None:
        from psofed.federation.deploy.status import together

        rounds, last = status["rounds"], status.get("last")
        if rounds and self.update is not None:
            self.update(status["round"], rounds)
        if not last:
            return
        if not sys.stderr.isatty():
            clients = f"{len(last['accepted'])} of {len(last['participants'])} clients"
            line = f"round {last['round']}{f'/{rounds}' if rounds else ''}: {clients}, {last['seconds']:.1f} s"
            dropped = ", ".join(together(last["dropped"]))
            say(f"{line}; dropped {dropped}" if dropped else line)
        texts = {**last["remarks"], **last["reasons"]}
        for text in together({node: text for node, text in texts.items() if self._said.get(node) != text}):
            say(f"  {text}")
        self._said |= texts


def _show_outcome(result: dict[str, Any], home: "Home", output: PlotOutput) -> None:
    from psofed.federation.deploy.result import FederationOutcome

    output.present(FederationOutcome(result, files=f"Result in {home.result}."))


COMMANDS = (demo, run, resume, stop, rollback, export, predict, certs, revoke, server, status, client)
