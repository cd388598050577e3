"""``psofed reproduce``: reproduce the paper's figures, with a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from psofed.cli.completion import complete_figures
from psofed.cli.inputs import Cluster
from psofed.cli.outputs import Output, print_json, progress
from psofed.cli.sweep import stopped_by_hand
from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings


class FigureSettings(Settings):
    """Which figures are reproduced, and how precisely."""

    group = "Run"

    figures: Sequence[str] = option(
        default=(),
        positional=True,
        repeat=True,
        metavar="[FIGURE]...",
        complete=complete_figures,
        text="figures to reproduce: fig1 … fig9, or all (the default); or resilience, a table of attacks and rules",
    )
    quick: bool = option(default=False, text="draw a rough version in seconds")
    trials: int | None = option(
        default=None, low=2, text="trials of every point; by default each figure's own number"
    )
    seed: int = option(default=0, low=0, text="random seed of all figures")
    threads: int | None = option(default=None, low=1, text="points simulated at once; all cores by default")


class FigureOutput(Output):
    """Where figures go."""

    out: Path = option(
        default=Path("out"), metavar="DIR", text="folder for figures, data, report and finished points"
    )


def reproduce(settings: FigureSettings, cluster: Cluster, output: FigureOutput) -> None:
    """Reproduce the paper's figures: simulation, the paper's theory, the exact theory, the printed points.

    Writes each figure as SVG, PNG, JSON, NetCDF and CSV, and report.html with verdicts on the paper's claims.
    Finished points are kept in DIR/cells; run the command again to continue an interrupted run.
    """
    if tuple(settings.figures) == ("resilience",):
        _reproduce_resilience(settings, cluster, output)
    elif "resilience" in settings.figures:
        raise PsofedError(
            "resilience is a study of its own: reproduce it and the figures one after the other."
        )
    else:
        _reproduce_figures(settings, cluster, output)


def _reproduce_figures(settings: FigureSettings, cluster: Cluster, output: FigureOutput) -> None:
    from psofed.paper.model import Quality
    from psofed.paper.report import reproduction_report
    from psofed.paper.reproduce import choose_figures
    from psofed.paper.reproduce import reproduce as make_figures
    from psofed.paper.reproduction import drawing_helpers, save_reproduction
    from psofed.studies.sweeps import CellStore

    names = choose_figures(list(settings.figures))
    quality = Quality(quick=settings.quick, trials=settings.trials, seed=settings.seed)
    store = CellStore(output.out / "cells")
    with stopped_by_hand(), cluster.connect() as executor, progress("simulating", "points") as report:
        made = make_figures(
            names, quality, threads=settings.threads, executor=executor, store=store, progress=report
        )
    if store.damaged:
        typer.echo(f"psofed: {len(store.damaged)} damaged points were simulated again", err=True)
    with drawing_helpers(len(made.figures)) as helpers, progress("writing", "steps") as report:
        claims, page = save_reproduction(made, output.out, helpers, report)

    def to_json() -> dict[str, Any]:
        documents = [data.to_json() for data in made.figures.values()]
        about = {"claims": [claim.to_json() for claim in claims], "report": str(page)}
        return {**documents[0], **about} if len(documents) == 1 else {"figures": documents, **about}

    output.show(to_json, lambda: reproduction_report(made, claims, page))


def _reproduce_resilience(settings: FigureSettings, cluster: Cluster, output: FigureOutput) -> None:
    from psofed.paper.resilience import run_resilience

    with stopped_by_hand(), cluster.connect() as executor, progress("simulating", "points") as report:
        matrix = run_resilience(
            output.out, settings.quick, settings.trials, settings.threads, report, settings.seed, executor
        )
    if output.as_json:
        print_json(matrix.to_json())
        return
    typer.echo(
        f"Wrote {output.out}/resilience.md, its pictures resilience_*.svg, resilience.json, resilience.csv and "
        "resilience.nc."
    )
