"""Saves reproduced figures: pictures, data, verdicts on the claims, and the page with all of them."""

import json
import time
from pathlib import Path

from psofed.common.files import atomic_path
from psofed.paper.claims import check_claims
from psofed.paper.figure_plots import save_figure
from psofed.paper.page import write_page
from psofed.paper.reproduce import Reproduction
from psofed.paper.verdict import Claim


def save_reproduction(reproduction: Reproduction, folder: Path) -> tuple[list[Claim], Path]:
    """Write every figure as SVG, PNG, JSON, NetCDF and CSV, claims.json and report.html.

    Returns
    -------
    claims : list of Claim
        Those whose figures are there.
    page : Path
        The report.
    """
    started = time.perf_counter()
    for name, data in reproduction.figures.items():
        with atomic_path(folder / f"{name}.json") as temporary:
            temporary.write_text(json.dumps(data.to_json(), indent=1, allow_nan=False), encoding="utf-8")
        data.save_data(folder)
        save_figure(data, folder)
    claims = check_claims(reproduction.figures)
    with atomic_path(folder / "claims.json") as temporary:
        text = json.dumps([claim.to_json() for claim in claims], indent=1, ensure_ascii=False)
        temporary.write_text(text, encoding="utf-8")
    seconds = reproduction.simulation_seconds + reproduction.theory_seconds + time.perf_counter() - started
    return claims, write_page(reproduction, claims, seconds, folder)
