"""Tables of docs/comparison.md and docs/tables, from what was measured."""

from typing import Any

import numpy as np

from benchmarks._timing import markdown_table
from benchmarks.peers.scripts.common import LARGE, SHARES
from psofed.results.differences import ratio_of_means

OURS, FULL = "psofed, M = 1", "psofed, all entries, mean"


def tables(results: dict[str, Any]) -> dict[str, str]:
    """Return each table by the name of its place on the page."""
    return {
        "peers-versions": _versions(results),
        "peers-errors": _errors(_gather(results, "msd")),
        "peers-bytes": _bytes(_gather(results, "bytes")),
        "peers-rates": _rates(_gather(results, "rates")),
    }


def _gather(results: dict[str, Any], what: str) -> dict[str, Any]:
    return {name: value for result in results.values() for name, value in result.get(what, {}).items()}


def _versions(results: dict[str, Any]) -> str:
    lines = []
    for peer, result in results.items():
        found = ", ".join(f"{name} {version}" for name, version in result.get("versions", {}).items())
        lines.append([peer, found or f"failed: {result['error']}"])
    return markdown_table(["", "measured with"], lines)


def _errors(msd: dict[str, list[float]]) -> str:
    rows = []
    for name, trials in sorted(msd.items(), key=lambda item: float(np.mean(item[1]))):
        values = np.array(trials)
        beside = "" if name == OURS else _signed(values, np.array(msd[OURS]))
        rows.append([name, _decibels(float(values.mean())), beside])
    return markdown_table(["", "server MSD", "above `psofed, M = 1` (paired)"], rows)


def _signed(values: Any, ours: Any) -> str:
    if not np.isfinite(values).all():
        return "diverged"
    return "{:.1f} ± {:.1f} dB".format(*ratio_of_means(values, ours)).replace("-", "−")


def _decibels(value: float) -> str:
    return f"{10 * np.log10(value):.1f} dB".replace("-", "−") if np.isfinite(value) else "diverged"


def _bytes(sizes: dict[str, dict[str, list[int]]]) -> str:
    full = sizes["Flower, FedAvg"]["1.0"] if "Flower, FedAvg" in sizes else [4 * LARGE, 4 * LARGE]
    rows = []
    for name, by_share in sizes.items():
        for share in (*SHARES, 1.0):
            # Nobody would share everything by a mask; what a full send costs is Flower's row.
            if str(share) not in by_share or (share == 1.0 and len(by_share) > 1):
                continue
            down, up = by_share[str(share)]
            parts = [f"{100 * part:.1f} %" for part in (down / full[0], up / full[1], (down + up) / sum(full))]
            rows.append([name, f"{100 * share:g} %", f"{down:,}", f"{up:,}", *parts])
    return markdown_table(["", "share", "bytes down", "bytes up", "down, of a full send", "up", "both"], rows)


def _rates(rates: dict[str, float]) -> str:
    ordered = sorted(rates.items(), key=lambda item: -item[1])
    rows = [[name, _short(rate), _faster(rates[OURS] / rate)] for name, rate in ordered]
    return markdown_table(["", "client updates per CPU second", "psofed's simulator is"], rows)


def _faster(ratio: float) -> str:
    return "" if ratio == 1 else f"{float(f'{ratio:.2g}'):,.0f} times faster"


def _short(rate: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {unit}"
    return f"{rate:.3g}"
