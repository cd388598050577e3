"""``psofed reproduce``: make the paper's figures again, with a report."""

from pathlib import Path
from typing import Annotated

import typer

from psofed.cli.common import AsJson, print_json, progress
from psofed.cli.completion import complete_figures
from psofed.cli.sweep import Cluster, stopped_by_hand


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(reproduce)


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURE]...",
            help="fig1 … fig9, or all (the default); resilience alone: the matrix attack × aggregation × M.",
            autocompletion=complete_figures,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rough version in seconds.")] = False,
    trials: Annotated[
        int | None, typer.Option(help="Trials of every point, instead of each figure's own.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all figures.")] = 0,
    threads: Annotated[
        int | None, typer.Option(help="Points computed at once; all cores by default.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where figures, data, report and cells go.")
    ] = Path("out"),
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Make the paper's figures again: simulation, the paper's theory, the exact theory, the printed points.

    Writes each figure as SVG, PNG, JSON, NetCDF and CSV, and report.html with the verdicts on the paper's
    claims. Finished points are kept in DIR/cells; run it again to go on where it was stopped.
    """
    from psofed.common.validation import check_integer
    from psofed.paper.model import Quality
    from psofed.paper.reproduce import choose_figures
    from psofed.paper.reproduce import reproduce as make_figures
    from psofed.paper.reproduction import drawing_helpers, save_reproduction
    from psofed.sweeps import CellStore
    from psofed.sweeps.execute import connect

    if figures == ["resilience"]:
        _reproduce_resilience(out, quick, trials, threads, seed, cluster, as_json)
        return
    names = choose_figures(figures or [])
    if trials is not None:
        check_integer("--trials", trials, 2)
    quality = Quality(quick=quick, trials=trials, seed=check_integer("--seed", seed, 0))
    store = CellStore(out / "cells")
    with stopped_by_hand(), connect(cluster) as executor, progress("simulating", "points") as report:
        found = make_figures(names, quality, threads=threads, executor=executor, store=store, progress=report)
    if store.damaged:
        typer.echo(f"psofed: {len(store.damaged)} damaged cells were computed again", err=True)
    with drawing_helpers(len(found.figures)) as helpers, progress("writing", "steps") as report:
        claims, page = save_reproduction(found, out, helpers, report)
    if as_json:
        documents = [data.to_json() for data in found.figures.values()]
        about = {"claims": [claim.to_json() for claim in claims], "report": str(page)}
        print_json({**documents[0], **about} if len(documents) == 1 else {"figures": documents, **about})
        return
    for data in found.figures.values():
        error = data.worst_standard_error_db
        typer.echo(f"{data.name}  {data.title} ({data.trials} trials, standard errors up to {error:.3f} dB)")
    for claim in claims:
        typer.echo(
            f"{claim.verdict:>14}  {claim.statement}" + (f": {claim.condition}" if claim.condition else "")
        )
    typer.echo(f"See {page}")


def _reproduce_resilience(
    out: Path,
    quick: bool,
    trials: int | None,
    threads: int | None,
    seed: int,
    cluster: str | None,
    as_json: bool,
) -> None:
    from psofed.paper.resilience import run_resilience
    from psofed.sweeps.execute import connect

    with stopped_by_hand(), connect(cluster) as executor, progress("simulating", "points") as report:
        matrix = run_resilience(out, quick, trials, threads, report, seed, executor)
    if as_json:
        print_json(matrix.to_json())
        return
    typer.echo(
        f"See {out}/resilience.md, its pictures resilience_*.svg, resilience.json, resilience.csv and resilience.nc"
    )
