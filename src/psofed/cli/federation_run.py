"""The federation's commands that run something: the demo, a scenario, and its continuation."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from psofed.cli.federation_common import HomeFolder, ready, say
from psofed.cli.flags import Given
from psofed.cli.inputs import Plugins, ScenarioFile
from psofed.cli.outputs import Output, PlotOutput, print_json, progress
from psofed.common.options import option
from psofed.common.settings import Settings
from psofed.federation.protocol.run_options import DemoOptions, RunOptions

if TYPE_CHECKING:
    from psofed.federation.deploy.settings import RunSettings
    from psofed.federation.deploy.superlink import Home
    from psofed.scenario import Scenario


class DemoHome(HomeFolder):
    """Where the files of the demonstration are."""

    home: Path = option(default=Path("psofed-demo"), metavar="DIR", text="folder with all files of the demo")


class ReplaceOption(Settings):
    """Whether to replace earlier files."""

    force: bool = option(default=False, text="replace the result and checkpoints of an earlier run")


class ResumeOptions(Settings):
    """How far to continue."""

    rounds: int | None = option(
        default=None, low=0, text="new total number of rounds; 0: until stopped; by default unchanged"
    )
    bench_after: int | None = option(
        default=None,
        low=0,
        text="new limit of bad replies before a client is no longer asked; a higher one readmits clients; 0: none",
    )


class RollbackOptions(Settings):
    """How far to go back."""

    to_round: int = option(low=0, text="round to return to")


class ExportOptions(Settings):
    """Where a model goes."""

    out: Path = option(metavar="FILE", text="file to write: .npz, .json, or .onnx for other programs")
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


_said: dict[str, str] = {}  # the nodes' last remarks, in the one run that a command follows


def demo(options: DemoOptions, home: DemoHome, output: PlotOutput) -> None:
    """Run a federation of real processes on this machine, with TLS, node keys and one Byzantine node."""
    with ready():
        from psofed.federation.deploy.demo import demo_settings, predict_demo, run_demo
        from psofed.federation.deploy.payoff import pay_off

        output.check()
        settings = demo_settings(
            options.nodes,
            options.rounds,
            options.seed,
            options.samples_per_round,
            options.deadline,
            defended=not options.undefended,
        )
        levels: list[float] = []
        place = home.open(made=False)
        with progress("federation", "rounds") as update:
            result = run_demo(
                settings,
                place,
                on_step=say,
                on_round=lambda status: _show_level(status, levels, lambda: _show_round(status, update)),
                supernodes=options.supernodes,
            )
        if options.undefended:
            _show_outcome(result, place, output, prediction=predict_demo(settings))
            return
        say("replaying the same streams without partial sharing and without the defence")
        _show_outcome(result, place, output, payoff=pay_off(result, settings, place))


def _show_level(status: dict[str, Any], levels: list[float], show: Callable[[], None]) -> None:
    """Show the server's MSD so far as a line of bars, on a terminal."""
    from psofed.common.numbers import to_decibels
    from psofed.federation.deploy.payoff import bars

    level = ((status.get("last") or {}).get("evaluation") or {}).get("server-msd")
    if level is None or not sys.stderr.isatty():
        show()
        return
    levels.append(float(to_decibels(level)))
    line = f"round {status['round']}/{status['rounds']}  {bars(levels, min(levels), max(levels))}  {levels[-1]:.1f} dB"
    print(
        f"\r\x1b[K{line}",
        end="\n" if status["round"] == status["rounds"] else "",
        file=sys.stderr,
        flush=True,
    )


def run(
    source: ScenarioFile,
    options: Given[RunOptions],
    home: HomeFolder,
    replace: ReplaceOption,
    output: PlotOutput,
) -> None:
    """Run a scenario on the server of this machine; each iteration is a round.

    A scenario with a table, such as the plan that `psofed advise --out plan.toml` writes, gives the columns.
    Unless options say otherwise, its nodes learn one row per round, and the run waits for all participants.
    """
    with ready():
        from psofed.federation.deploy.settings import RunSettings

        scenario, remark = _with_rule(source, bool(options.values.get("synthetic")))
        chosen = RunSettings.planned(scenario, options.values, fixed_length="iterations" in source.values)
        remarks = [remark] if remark else []
        if scenario.attack is not None:
            kind = scenario.attack.kind
            remarks.append(
                f'Nodes started with --byzantine rehearse the attack "{kind}"; all others are honest.'
            )
        if scenario.data.rows is not None:
            named = chosen.columns
            remarks.append(
                f"columns {'as most nodes have them' if named is None else named}; {_pace(chosen)}"
            )
        if chosen.leave_out:
            remarks.append(f"never asked: {', '.join(chosen.leave_out)}")
        _submit_and_follow(chosen, home.open(), output, remarks, force=replace.force)


def _with_rule(source: ScenarioFile, synthetic: bool) -> "tuple[Scenario, str]":
    """Return the scenario of a run and a remark; unless a rule is named, the federation's own default is used."""
    from psofed.federation.server.step import ROBUST
    from psofed.parts.aggregations.mean import Mean
    from psofed.scenario.file import refuse_table

    assert source.file is not None  # it is required
    refuse_table(source.file, "a scenario: `psofed advise --data TABLE --out plan.toml` makes one from it")
    scenario = source.read(open_data=False)
    if synthetic:  # to be compared with the simulation of the same scenario
        return scenario, ""
    if not source.gives("aggregation"):
        remark = (
            f'The scenario names no aggregation rule: using "{ROBUST.kind}", which resists a Byzantine node.'
        )
        return scenario.replace(aggregation=ROBUST), remark
    if isinstance(scenario.aggregation, Mean):
        return scenario, (
            'WARNING: with aggregation = "mean" one Byzantine node can lead the model away; '
            "remove the line for a robust rule."
        )
    return scenario, ""


def resume(options: ResumeOptions, home: HomeFolder, output: PlotOutput, plugins: Plugins) -> None:
    """Continue the last run from its last completed round."""
    with ready():
        plugins.load()
        from psofed.common.errors import PsofedError
        from psofed.common.files import read_json
        from psofed.federation.deploy.settings import RunSettings
        from psofed.federation.deploy.submit import has_completed_round
        from psofed.federation.server.checkpoint import CheckpointStore
        from psofed.federation.server.sessions import load_usable

        place = home.open()
        if place.checkpoint.exists() and not has_completed_round(place):
            raise PsofedError(
                f"the latest run has completed no round, and {place.checkpoint} belongs to an earlier run; "
                f"start the latest again with {place.command('run FILE --force')}"
            )
        load_usable(CheckpointStore(place.checkpoint))  # a damaged one is reported before the run begins
        chosen = RunSettings.from_config(read_json(place.settings))
        changes = {"rounds": options.rounds, "bench_after": options.bench_after}
        chosen = chosen.replace(**{name: value for name, value in changes.items() if value is not None})
        _submit_and_follow(chosen.replace(resume=True), place, output)


def rollback(options: RollbackOptions, home: HomeFolder) -> None:
    """Return to the checkpoint of an earlier round; continue from there with `resume`.

    Everything learned since is discarded, by the clients too: each receives the full model when it is next selected.
    """
    with ready():
        from psofed.federation.deploy.submit import check_free
        from psofed.federation.server.checkpoint import CheckpointStore

        place = home.open()
        check_free(place, force=True)
        state = CheckpointStore(place.checkpoint).rollback(options.to_round)
        if status := place.read_status():
            status.pop("replaces", None)  # the run that the checkpoint belongs to is the one to continue
            place.write_status(status, round=state.round_number, state="rolled back")
        typer.echo(f"back at round {state.round_number}; {place.command('resume')} continues from there")


def stop(home: HomeFolder) -> None:
    """Stop the current run; continue it with `resume`."""
    with ready():
        from psofed.federation.deploy.submit import stop as stop_run

        place = home.open()
        done = stop_run(place)
        continued = f"after round {done}; {place.command('resume')} continues from there"
        typer.echo(f"stopped {continued if done else 'before the first round was completed'}")


def export(options: ExportOptions, home: HomeFolder) -> None:
    """Write the server's model after its last completed round to a file."""
    with ready():
        from psofed.federation.deploy.export import describe, from_checkpoint, from_client, save_model

        client = None if options.scaling is None else from_client(options.scaling)
        model = from_checkpoint(home.open().checkpoint, client)
        save_model(model, options.out)
        typer.echo(f"{options.out}: {describe(model)}")


def predict(options: PredictOptions, output: Output) -> None:
    """Predict the target for every row of a table, in its own unit if the model comes with a scaling."""
    with ready():
        from psofed.federation.deploy.export import describe, load_model, predict_rows

        loaded = load_model(options.model)
        say(describe(loaded))
        predictions = list(predict_rows(loaded, options.data, tuple(options.features)))
        if output.as_json:
            print_json({"predictions": predictions})
            return
        for value in predictions:
            typer.echo(f"{value:.10g}")


def _submit_and_follow(
    settings: "RunSettings",
    home: "Home",
    output: PlotOutput,
    remarks: Sequence[str] = (),
    *,
    force: bool = False,
) -> None:
    from psofed.common.errors import PsofedError
    from psofed.federation.deploy.status import server_address
    from psofed.federation.deploy.submit import follow, submit

    output.check()
    if server_address(home) is None:
        raise PsofedError(f"no server is running in {home.folder}; start it with {home.command('server')}")
    identity = submit(home, settings, force=force)
    for remark in remarks:
        say(remark)
    nodes = "a node" if settings.min_nodes == 1 else f"{settings.min_nodes} nodes (a gateway counts as one)"
    say(f"run submitted, waiting for {nodes}, at most {settings.wait_for_nodes:g} s")
    with progress("federation", "rounds") as update:
        patience = settings.wait_for_nodes + settings.deadline + settings.interval + 60.0
        result = follow(home, identity, patience, on_progress=lambda status: _show_round(status, update))
    _show_outcome(result, home, output)
    _check_learned(result)


def _check_learned(result: dict[str, Any]) -> None:
    """End with code 1 if nobody has learned anything."""
    if result["examples"]:
        return
    say("nobody has learned anything: no reply with a sample was accepted")
    raise typer.Exit(1)


def _pace(settings: "RunSettings") -> str:
    count = settings.samples_per_round
    return "all rows that have arrived" if not count else f"{count} row{'' if count == 1 else 's'} a round"


def _show_round(status: dict[str, Any], update: Any) -> None:
    from psofed.federation.deploy.status import together

    if status["rounds"]:
        update(status["round"], status["rounds"])
    last = status.get("last")
    if not last:
        return
    reasons = last["reasons"]
    dropped = {
        node: kind + (f" ({reasons[node]})" if node in reasons else "")
        for node, kind in last["dropped"].items()
    }
    answered = f"{len(last['accepted'])} of {len(last['participants'])} clients"
    of = f"/{status['rounds']}" if status["rounds"] else ""
    line = f"round {last['round']}{of}: {answered}, {last['seconds']:.1f} s"
    if not sys.stderr.isatty():
        say(f"{line}; dropped {', '.join(together(dropped))}" if dropped else line)
    fresh = {node: remark for node, remark in last["remarks"].items() if _said.get(node) != remark}
    for text in together(fresh):  # once is enough, until it changes
        say(f"  {text}")
    _said.update(last["remarks"])


def _show_outcome(result: dict[str, Any], home: "Home", output: PlotOutput, **compared: Any) -> None:
    from psofed.federation.deploy.outcome import FederationOutcome

    files = f"Result in {home.result} and {home.result.with_suffix('.nc')}; logs in {home.logs}."
    outcome = FederationOutcome(result, files=files, **compared)
    output.present(outcome)
