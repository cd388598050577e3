"""Text of the page besides the charts: the form, sentences, numbers, and snippets to copy."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from psofed.explore import exports, words
from psofed.explore.presets import Preset
from psofed.explore.settings import PageSettings, to_query
from psofed.explore.sides import Side
from psofed.results import METRIC_TITLES

PATIENCE = 1.5  # seconds after which the page says that theory takes long, and why
_OPEN_GROUPS = ("Sharing", "Attack", "Fleet")


def form(
    sides: Mapping[str, Side],
    active: str,
    groups: list[dict[str, Any]],
    presets: Iterable[Preset],
    metric: str,
) -> dict[str, Any]:
    """Return the form of the active side; `groups` are its fields."""
    return {
        "side": active,
        "sides": list(sides),
        "groups": [{**group, "open": group["title"] in _OPEN_GROUPS} for group in groups],
        "presets": [[preset.name, preset.title] for preset in presets],
        "preset": sides[active].preset,
        "metrics": [list(item) for item in METRIC_TITLES.items()],
        "metric": metric,
    }


def top(sides: Mapping[str, Side], metric: str, refused: str) -> dict[str, Any]:
    """Return what stands above the charts: sentences, tiles of numbers, and how far the simulation is."""
    sentences = [{"side": "", "text": refused, "trouble": True}] if refused else []
    for name, side in sides.items():
        sentences += [{"side": name, **line} for line in _lines(side, metric)]
    running = [side for side in sides.values() if side.simulating]
    dots = [side.simulation["present"] for side in sides.values() if "present" in side.simulation]
    text = (
        f"{min(dot['trials'] for dot in dots)} trials simulated" if dots else "starting …" if running else ""
    )
    progress = sum(side.progress for side in running) / len(running) if running else 0.0
    return {
        "sentences": sentences,
        "stale": any("point" not in side.fresh and not side.fresh.get("refusal") for side in sides.values()),
        "tiles": words.tiles({name: _numbers(side) for name, side in sides.items()}, metric),
        "simulation": {"running": bool(running), "progress": round(progress, 3), "text": text},
    }


def copies(
    sides: Mapping[str, Side], active: str, metric: str, origin: exports.Origin, token: str
) -> dict[str, Any]:
    """Return what can be copied: the active scenario as TOML, command and Python, and the page as a link's query."""
    side = sides[active]
    predictable = not (side.fresh.get("refusal") or side.fresh.get("error"))
    about = (side.scenario, origin, side.own_data, predictable)
    mappings = {name: one.scenario.to_mapping() for name, one in sides.items()}
    owned = frozenset(name for name, one in sides.items() if one.own_data)
    return {
        "toml": side.scenario.to_toml(),
        "command": exports.as_command(*about),
        "python": exports.as_python(*about),
        "query": to_query(PageSettings(mappings, owned, metric)),
        "token": token,
    }


def _lines(side: Side, metric: str) -> list[dict[str, Any]]:
    refusal = side.fresh.get("refusal", "")
    error = side.fresh.get("error") or side.simulation.get("error")
    lines: list[dict[str, Any]] = []
    if refusal:
        if not side.simulation.get("error"):
            said = words.simulated_sentence(side.scenario, side.simulation, metric, side.simulating)
            lines.append({"text": said, "trouble": False})
        lines.append({"text": f"{refusal[0].upper()}{refusal[1:]}. So it is simulated.", "trouble": True})
    elif not side.fresh.get("error"):
        shown = side.fresh if "point" in side.fresh else {}
        lines.append({"text": words.sentence(side.scenario, shown, metric), "trouble": False})
    if error:
        lines.append({"text": error, "trouble": True})
    seconds = time.monotonic() - side.asked_at
    if side.waits_for_theory and seconds > PATIENCE:
        what = "finer curves" if "point" in side.fresh else "the numbers"
        why = words.why_slow(side.scenario, side.own_data)
        text = f"Computing {what} from theory, {seconds:.0f} s so far{why and ': '}{why}."
        lines.append({"text": text, "trouble": False, "slow": True})
    return lines


def _numbers(side: Side) -> dict[str, Any]:
    return words.number_rows(side.scenario, side.fresh, side.picture, side.simulation.get("present"))
