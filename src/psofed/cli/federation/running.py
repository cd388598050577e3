"""The federation's commands that run something: the demo, a scenario, and its continuation."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from psofed.cli.federation.common import HomeFolder, ready, say
from psofed.cli.flags import Given
from psofed.cli.inputs import Plugins, ScenarioFile
from psofed.cli.outputs import PlotOutput, progress
from psofed.common.options import option
from psofed.federation.deploy.options import (
    DemoOptions,
    ExportOptions,
    FollowOption,
    ReplaceOption,
    ResumeOptions,
    RollbackOptions,
)
from psofed.federation.protocol.run_options import RunOptions

if TYPE_CHECKING:
    from psofed.federation.deploy.home import Home, RunRequest
    from psofed.scenario import Scenario


class DemoHome(HomeFolder):
    """Where the files of the demonstration are."""

    home: Path = option(default=Path("psofed-demo"), metavar="DIR", text="folder with all files of the demo")


def demo(options: DemoOptions, home: DemoHome, output: PlotOutput) -> None:
    """Run a federation with one Byzantine node on this machine: real processes if mosquitto is installed."""
    with ready(network=False):
        from psofed.federation.deploy.demo import compare_unprotected, demo_settings, run_demo

        output.check()
        settings, place = demo_settings(options), home.open(made=False)
        follower = _Follower()
        with progress("federation", "rounds") as follower.update:
            result = run_demo(settings, place, say, follower, in_process=options.in_process)
        say("replaying the same streams without protection")
        _show_outcome(result, place, output, comparison=compare_unprotected(result, settings))


def run(
    source: ScenarioFile,
    options: Given[RunOptions],
    home: HomeFolder,
    replace: ReplaceOption,
    following: FollowOption,
    output: PlotOutput,
) -> None:
    """Run a scenario on the server of this machine; each iteration is a round.

    A scenario with a table, such as the plan that `psofed advise --out plan.toml` writes, gives the columns.
    Unless options say otherwise, its nodes learn one row per round, and the run waits for all participants.
    """
    with ready(network=False):
        from psofed.federation.deploy.operate import submit
        from psofed.federation.protocol.run_settings import RunSettings
        from psofed.render.numbers import counted

        output.check()
        scenario, remarks = _with_rule(source, bool(options.values.get("synthetic")))
        settings = RunSettings.planned(scenario, options.values, fixed_length="iterations" in source.values)
        place = home.open()
        request = submit(place, settings, force=replace.force)
        if scenario.attack is not None:
            kind = scenario.attack.kind
            remarks.append(f'Nodes started with --byzantine rehearse the attack "{kind}"; all others are honest.')
        if scenario.data.rows is not None:
            rows, columns = settings.samples_per_round, settings.columns or "without names"
            pace = f"{counted(rows, 'row')} a round" if rows else "all rows that have arrived"
            remarks.append(f"columns {columns}; {pace}")
        if settings.leave_out:
            remarks.append(f"never asked: {', '.join(settings.leave_out)}")
        _follow(place, request, output, remarks, detach=following.detach)


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


def resume(
    options: ResumeOptions, home: HomeFolder, following: FollowOption, output: PlotOutput, plugins: Plugins
) -> None:
    """Continue the last run from its last completed round."""
    with ready(network=False):
        plugins.load()
        from psofed.federation.deploy.operate import resume as ask_to_resume

        output.check()
        place = home.open()
        request = ask_to_resume(place, rounds=options.rounds, ban_after=options.ban_after)
        _follow(place, request, output, detach=following.detach)


def rollback(options: RollbackOptions, home: HomeFolder) -> None:
    """Return to the checkpoint of an earlier round; continue from there with `resume`.

    Everything learned since is discarded, by the clients too: each receives the full model when it is next selected.
    """
    with ready(network=False):
        from psofed.federation.deploy.operate import rollback as roll_back

        place = home.open()
        done = roll_back(place, options.to_round)
        typer.echo(f"back at round {done}; {place.command('resume')} continues from there")


def stop(home: HomeFolder) -> None:
    """Stop the current run; continue it with `resume`."""
    with ready(network=False):
        from psofed.federation.deploy.home import STOPPED
        from psofed.federation.deploy.operate import stop as stop_run

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


def _follow(
    home: "Home", request: "RunRequest", output: PlotOutput, remarks: Sequence[str] = (), *, detach: bool
) -> None:
    from psofed.federation.deploy.operate import follow

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


def _show_outcome(result: dict[str, Any], home: "Home", output: PlotOutput, **compared: Any) -> None:
    from psofed.federation.deploy.outcome import FederationOutcome
    from psofed.federation.deploy.result import save_dataset_of

    files = f"Result in {home.result} and {save_dataset_of(result, home.result)}."
    output.present(FederationOutcome(result, files=files, **compared))
