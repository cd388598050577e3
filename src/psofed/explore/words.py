"""Sentences of the page, with every number computed."""

import math
from typing import Any

from psofed.results import METRIC_TITLES
from psofed.results.metrics import EVASION_TITLES
from psofed.scenario import Scenario

MINUS = "−"
EVASION = "evasion_test_mse"


def decibels(value: float | None, digits: int = 1) -> str:
    """Format a linear error in dB for a person.

    Examples
    --------
    >>> decibels(0.0229), decibels(math.inf), decibels(None)
    ('−16.4 dB', 'diverges', '…')
    """
    if value is None:
        return "…"
    if not math.isfinite(value):
        return "diverges"
    return "none" if value <= 0 else f"{signed(10 * math.log10(value), digits)} dB"


def signed(value: float, digits: int = 1) -> str:
    """Format a number with a true minus sign, and no minus before zero.

    Examples
    --------
    >>> signed(-0.04), signed(-1.25, 2)
    ('0.0', '−1.25')
    """
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", MINUS)


def difference(first: float | None, second: float | None) -> str:
    """Say how much more the second error is than the first, in dB.

    Examples
    --------
    >>> difference(0.01, 0.02), difference(0.01, math.inf)
    ('+3.0 dB', 'diverges')
    """
    if first is None or second is None:
        return "…"
    if not (math.isfinite(first) and math.isfinite(second)):
        return (
            "diverges"
            if math.isfinite(first)
            else "both diverge"
            if not math.isfinite(second)
            else "converges"
        )
    if first <= 0 or second <= 0:
        return "…"
    change = 10 * math.log10(second / first)
    text = signed(change)
    return f"{'' if text.startswith(MINUS) or text == '0.0' else '+'}{text} dB"


def sentence(scenario: Scenario, picture: dict[str, Any], metric: str = "network_mse") -> str:
    """Say what the present settings give, and what sharing everything would.

    Parameters
    ----------
    scenario : Scenario
    picture : dict
        The steps of :func:`psofed.explore.theory.theory_steps`, added up; or of a simulation, where theory refuses.
    metric : str

    Examples
    --------
    >>> fleet = Scenario(num_clients=50, dimension=5, stepsize=0.0766)
    >>> picture = {"point": {"network_mse": 0.0229}, "full": {"network_mse": 0.083}}
    >>> sentence(fleet, picture)
    'Sharing 1 of 5 entries with stepsize 0.077 gives −16.4 dB; sharing everything gives −10.8 dB.'
    """
    shared, entries = scenario.num_shared, scenario.dimension
    point = picture.get("point")
    how = f"with stepsize {scenario.stepsize:.2g}"
    what = f"Sharing {shared} of {entries} entries" if shared < entries else f"Sharing all {entries} entries"
    if point is None:
        return f"{what} {how} …"
    value = point[metric]
    if math.isnan(value):
        return f"{what} {how}: theory has no {METRIC_TITLES[metric]} for this model."
    text = f"{what} {how} " + ("diverges" if not math.isfinite(value) else f"gives {decibels(value)}")
    if shared == entries:
        return (
            text
            + _where_it_ends(picture, "full_byzantine", scenario, value)
            + _best(picture, "best", scenario, metric)
            + "."
        )
    text += _where_it_ends(picture, "byzantine", scenario, value)
    full = picture.get("full")
    if full is None:
        return text + "; sharing everything …"
    error = full[metric]
    gives = "diverges" if not math.isfinite(error) else f"gives {decibels(error)}"
    text += f"; sharing everything {gives}"
    text += _best(picture, "full_best", scenario, metric)
    return text + _where_it_ends(picture, "full_byzantine", scenario, error) + "."


def simulated_sentence(
    scenario: Scenario, simulation: dict[str, Any], metric: str = "network_mse", running: bool = True
) -> str:
    """Say what simulation shows, where there is no theory.

    Parameters
    ----------
    scenario : Scenario
    simulation : dict
        The steps of :func:`psofed.explore.simulating.simulation_steps`, added up.
    metric : str
    running : bool
        Whether more is to come.
    """
    dot, shared = simulation.get("present"), simulation.get("shared", [])
    count, entries = scenario.num_shared, scenario.dimension
    what = f"Sharing {count} of {entries} entries" if count < entries else f"Sharing all {entries} entries"
    what += f" with stepsize {scenario.stepsize:.2g}"
    if dot is None:
        return f"{what}: {'simulating …' if running else 'not simulated yet.'}"
    said = f"{what} {_gives(dot, metric)} in {dot['trials']} simulated trials"
    full = next((row for row in shared if row["num_shared"] == entries), None)
    if count == entries or full is None:
        return said + "."
    return f"{said}; sharing everything {_gives(full, metric)}."


def number_rows(
    scenario: Scenario, fresh: dict[str, Any], before: dict[str, Any], dot: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the numbers of one side for the tiles, linear: metrics, limit, best stepsize, traffic, simulated.

    Parameters
    ----------
    scenario : Scenario
    fresh, before : dict
        What theory says of it, and, where that is not known yet, what it said last; then its key is in ``"stale"``.
    dot : dict, optional
        What simulation shows.
    """
    from psofed.results.traffic import measure_communication

    def known(key: str) -> Any:
        return fresh[key] if key in fresh else before.get(key)

    traffic, point, best = measure_communication(scenario), known("point") or {}, known("best")
    stale = {name for name, key in (("limit", "limit"), ("best_stepsize", "best")) if key not in fresh}
    return {
        **{metric: point.get(metric) for metric in METRIC_TITLES},
        "limit": known("limit"),
        "best_stepsize": None if best is None else best["stepsize"],
        "has_best": "best" not in fresh or best is not None,  # else the smaller the stepsize, the better
        "numbers_per_iteration": float(traffic.numbers_down + traffic.numbers_up),
        "simulated": dot,
        "has_evasion": scenario.evasion is not None,
        "evasion": point.get("evasion"),
        "refused": bool(fresh.get("refusal") or fresh.get("error")),
        "stale": stale | (set() if "point" in fresh else {*METRIC_TITLES, "evasion"}),
    }


def why_slow(scenario: Scenario, own_data: bool = False) -> str:
    """Return why theory takes longer for a scenario than for most; nothing if there is no known reason.

    Examples
    --------
    >>> from psofed.scenario import Data
    >>> why_slow(Scenario(num_clients=50, dimension=5, data=Data(input_correlation=0.5)))
    'with correlated inputs it follows a 5 × 5 matrix for each pair of clients, not a number'
    """
    entries = scenario.dimension
    data, selection = scenario.data, scenario.selection
    if own_data or data.input_correlation or data.covariances is not None or not scenario.is_linear:
        matrix = f"a {entries} × {entries} matrix"
        return f"with correlated inputs it follows {matrix} for each pair of clients, not a number"
    if selection.pattern.kind == "round-robin":
        return "with round-robin masks it goes through the places in the round" + (
            "" if selection.coordinated else ", for many draws of the clients' offsets"
        )
    return ""


def _gives(dot: dict[str, Any], metric: str) -> str:
    if dot["diverged"]:
        return f"diverges in {dot['diverged']} of {dot['trials']} trials"
    low, high = dot[f"{metric}_low"], dot[f"{metric}_high"]
    if not (math.isfinite(low) and low > 0):
        return f"gives {decibels(dot[metric])}"
    reach = 5 * math.log10(high / low)
    return f"gives {decibels(dot[metric])} ± {reach:.2f}"


def _best(picture: dict[str, Any], key: str, scenario: Scenario, metric: str) -> str:
    best = picture.get(key)
    if best is None or abs(best["stepsize"] / scenario.stepsize - 1) < 0.02:
        return ""
    return f" ({decibels(best[metric])} at its best stepsize, {best['stepsize']:.3g})"


def _where_it_ends(picture: dict[str, Any], key: str, scenario: Scenario, value: float) -> str:
    """Return from how many Byzantine clients on it diverges; empty if it never does."""
    most = picture.get(key)
    if most is None:
        return ""
    if most < 0:
        return " even without Byzantine clients"
    if most >= scenario.num_clients:
        return ""
    joint = " and diverges" if math.isfinite(value) else ""
    return f"{joint} with {most + 1} or more Byzantine clients"


def tiles(numbers: dict[str, dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return the tiles under the sentence: each number for every side, and the difference where there are two.

    Parameters
    ----------
    numbers : dict
        By side, from :func:`number_rows`.
    metric : str
        The one that is looked at, whose simulated value is shown.
    """
    made = [
        _tile(key, title, numbers, lambda value: decibels(value, 2), difference)
        for key, title in METRIC_TITLES.items()
    ]
    dots = {side: row["simulated"] for side, row in numbers.items()}
    if any(dots.values()):
        values = {side: {"simulated": dot and dot[metric]} for side, dot in dots.items()}
        made.append(_tile("simulated", "simulated", values, lambda value: decibels(value, 2), difference))
    if any(row.get("has_evasion") for row in numbers.values()):
        made.append(_evasion_tile(numbers))
    made.append(_tile("limit", "limit of stability", numbers, _plain_number, _ratio))
    shown = {
        side: {**row, "best_stepsize": row["best_stepsize"] if row["has_best"] else 0.0}
        for side, row in numbers.items()
    }
    made.append(_tile("best_stepsize", "best stepsize", shown, _best_number, _ratio))
    made.append(
        _tile("numbers_per_iteration", "numbers per iteration", numbers, lambda value: f"{value:g}", _ratio)
    )
    return made


def _evasion_tile(numbers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Show the server's error on moved inputs: simulated, else between the bounds of theory."""
    values = []
    for side, row in numbers.items():
        dot, bounds = row["simulated"] or {}, row["evasion"]
        if not row["has_evasion"]:
            text = "not measured"
        elif EVASION in dot:
            text = decibels(dot[EVASION], 2)
        elif bounds is None:
            text = "simulate it"
        else:
            text = f"{decibels(bounds[0]).removesuffix(' dB')} to {decibels(bounds[1])}"
        values.append({"side": side, "key": "evasion", "text": text, "stale": "evasion" in row["stale"]})
    return {"title": EVASION_TITLES[EVASION], "values": values, "relation": ""}


def _tile(
    key: str, title: str, numbers: dict[str, dict[str, Any]], show: Any, compare: Any
) -> dict[str, Any]:
    values = [
        {"side": side, "key": key, "text": _shown(row, key, show), "stale": key in row.get("stale", ())}
        for side, row in numbers.items()
    ]
    if len(numbers) == 2:
        first, second = (row[key] for row in numbers.values())
        values.append({"side": "difference", "key": key, "text": compare(first, second)})
    return {"title": title, "values": values, "relation": "B − A" if compare is difference else "B / A"}


def _shown(row: dict[str, Any], key: str, show: Any) -> str:
    return "no theory" if row.get("refused") and row[key] is None else str(show(row[key]))


def _plain_number(value: float | None) -> str:
    if value is None:
        return "…"
    return "none" if not math.isfinite(value) else f"{value:.3g}"


def _best_number(value: float | None) -> str:
    return "near 0" if value == 0.0 else _plain_number(value)


def _ratio(first: float | None, second: float | None) -> str:
    """Say what multiple of the first the second is."""
    if not first or second is None or not (math.isfinite(first) and math.isfinite(second)):
        return "…"
    return f"{second / first:.2f}"
