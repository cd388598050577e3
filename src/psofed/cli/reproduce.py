"""``psofed reproduce``: reproduce the paper's figures, with a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psofed.cli.completion import complete_figures
from psofed.cli.inputs import Cluster
from psofed.cli.outputs import ReportOutput, progress
from psofed.cli.sweep import keeping
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
        text="figures to reproduce: fig1 … fig9, or all (the default)",
    )
    changes: Sequence[str] = option(
        default=(),
        flag="--set",
        metavar="FIELD=VALUE",
        repeat=True,
        text="change a field of the figures' scenarios, such as stepsize=0.05; repeatable",
    )
    quick: bool = option(default=False, text="draw a rough version in seconds")
    trials: int | None = option(default=None, low=2, text="trials of every point; by default each figure's own number")
    seed: int = option(default=0, low=0, text="random seed of all figures")
    threads: int | None = option(default=None, low=1, text="points simulated at once; all cores by default")


class FigureOutput(ReportOutput):
    """Where figures go."""

    pdf: bool = option(default=False, text="write each figure as PDF too")
    width: str | None = option(
        default=None, metavar="WIDTH", text="width of the pictures: column or page of a journal, or inches"
    )

    out: Path = option(default=Path("out"), metavar="DIR", text="folder for figures, data, report and finished points")


def reproduce(settings: FigureSettings, cluster: Cluster, output: FigureOutput) -> None:
    """Reproduce the paper's figures: simulation, the paper's theory, the exact theory, the printed points.

    Writes each figure as SVG, PNG, JSON, NetCDF and CSV, and report.html with verdicts on the paper's claims.
    With --set, the figures show your scenario instead, without printed points and verdicts.
    Finished points are kept in DIR/cells; run the command again to continue an interrupted run.
    """
    from psofed.paper.model import Quality
    from psofed.paper.report import reproduction_report
    from psofed.paper.reproduce import choose_figures, save_reproduction
    from psofed.paper.reproduce import reproduce as make_figures
    from psofed.render.style import check_width
    from psofed.scenario.changes import parse_setting
    from psofed.studies.sweeps import CellStore

    names = choose_figures(list(settings.figures))
    changes = dict(parse_setting(text) for text in settings.changes)
    if output.width is not None:
        check_width(output.width)
    quality = Quality(quick=settings.quick, trials=settings.trials, seed=settings.seed)
    store = CellStore(output.out / "cells")
    with keeping(store), cluster.connect() as executor, progress("simulating", "points") as report:
        made = make_figures(
            names, quality, changes=changes, threads=settings.threads, executor=executor, store=store,
            progress=report,
        )  # fmt: skip
    with progress("writing", "steps") as report:
        claims, page = save_reproduction(made, output.out, report, width=output.width, pdf=output.pdf)

    def to_json() -> dict[str, Any]:
        documents = [data.to_json() for data in made.figures.values()]
        about = {"claims": [claim.to_json() for claim in claims], "report": str(page)}
        return {**documents[0], **about} if len(documents) == 1 else {"figures": documents, **about}

    output.present(made, to_json=to_json, report=lambda: reproduction_report(made, claims, page))
