"""``psofed explore``: a page with sliders for the exact theory."""

import typer

from psofed.cli.flags import Given
from psofed.cli.inputs import ScenarioInput
from psofed.cli.outputs import Output, print_json
from psofed.common.errors import PsofedError, missing_package
from psofed.settings.data import DataSettings
from psofed.settings.explorer import ExplorerSettings


def explore(settings: ExplorerSettings, source: ScenarioInput, reading: Given[DataSettings], output: Output) -> None:
    """Explore the theory with sliders, on a page that only this machine can open. Ctrl-C stops it.

    Without a FILE or --data, the page opens with the README's fleet.

    With --data, covariances and noise are measured in your table. Unless you give a stepsize, the page opens with the
    stepsize and the number of shared parameters that psofed advise finds best for all clients together.
    """
    source.load()
    scenario = None
    if source.file is not None or source.data is not None:
        scenario = source.fit(reading, everybody=True)
        if scenario.data.rows is not None and not source.gives("stepsize"):
            from psofed.studies.advice.ways import tuned_federation

            scenario = tuned_federation(scenario, keep_shared=source.gives("num_shared"))
    elif source.changes:
        raise PsofedError(f"--set {source.changes[0]} needs a FILE or --data TABLE to change.")
    try:
        from psofed.explore.server import Explorer
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("panel", "param", "bokeh"):
            raise
        raise missing_package("psofed explore", "Panel", "explore") from None
    explorer = Explorer(scenario, tuple(map(str, source.plugins)), settings.port)

    def ready() -> None:
        if output.as_json:
            print_json({"url": explorer.url})
        else:
            typer.echo(f"psofed explorer: {explorer.url}\nPress Ctrl-C to stop it.")
        if settings.browser:
            import webbrowser

            webbrowser.open(explorer.url)

    explorer.run(ready)
    if not output.as_json:
        typer.echo("psofed explorer: stopped")
