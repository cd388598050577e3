"""Asks a table whether federating helps: what is compared, run and judged, and how the answer is put together."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError, MissingValueError, NotCoveredError
from psofed.common.notices import notify
from psofed.common.settings import call_with, takes
from psofed.data.own_data import OwnData, read_data
from psofed.engine.compiling import is_cold
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Aggregation
from psofed.parts.registry import find_part
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.settings.data import DataSettings
from psofed.simulation.monte_carlo import check_covered
from psofed.studies.advice.advice import Advice, ClientGroup, Station, describe
from psofed.studies.advice.cautions import BOUND, cautions, extreme_rows
from psofed.studies.advice.groups import follow_advice
from psofed.studies.advice.judging import Gain, Judge, Way
from psofed.studies.advice.newcomer import ask_newcomer
from psofed.studies.advice.ways import Runner, boosted_trees, naive_ways, random_features
from psofed.studies.advice.what_if import ask_what_if, attack_on

if TYPE_CHECKING:
    import pandas

_HEAVY_NOTE = "the table is large: fewer stepsizes and numbers of shared parameters were tried."


@takes(AdviceSettings)
def advise(data: "Scenario | OwnData | str | Path | pandas.DataFrame | Any", settings: AdviceSettings) -> Advice:
    """Find out whether the clients of a table should federate, who with whom, how, and with what confidence.

    Every way to learn (each client alone, federations of all clients and of groups, with each number of shared
    parameters, all data pooled) is run at many stepsizes. In each block of time it uses the setting that was best
    before, and is judged by what follows. Naive forecasts, recursive least squares, random features and, if
    scikit-learn is installed, gradient boosting are judged on the same rows.

    Parameters
    ----------
    data : OwnData, Scenario, path or data frame
        What :func:`psofed.read_data` or :func:`psofed.from_arrays` returned, for a federation in which all clients take
        part; a scenario with such data (:meth:`psofed.Scenario.from_data`), for a federation as it describes; or a
        table, with `client_column`, `target_column`, `features`, `min_rows` and `warmup` as in `read_data`.

    Returns
    -------
    Advice
        The answer, with every way to learn and every client.

    Examples
    --------
    >>> from psofed import from_arrays
    >>> rng = np.random.default_rng(1)
    >>> X, clients = rng.standard_normal((1200, 3)), np.arange(1200) % 20
    >>> advice = advise(from_arrays(X, X.sum(axis=1) + rng.standard_normal(1200), clients), byzantine=0)
    >>> advice.verdict, advice.federation.gain.value > 0.1
    ('federate', True)
    """
    scenario = _scenario(data, settings)
    if scenario.learner.kind != "lms":
        raise NotCoveredError(f'psofed.advise compares ways to run LMS, not learner.kind = "{scenario.learner.kind}"')
    rule = settings.rule
    if rule is None:
        rule = "median" if isinstance(scenario.aggregation, Mean) else scenario.aggregation
    robust: Aggregation = find_part("aggregation", rule, "rule")() if isinstance(rule, str) else rule
    _ = scenario.common_stepsize  # what is tried is one number
    plain = scenario.replace(attack=None, aggregation="mean")
    attack = attack_on(scenario.num_clients, scenario, settings)
    for part in (plain, plain.replace(aggregation=robust, attack=attack)):
        check_covered(part)
    if is_cold():
        notify("compiling the kernels (once on this machine, some seconds)")
    return _compare(Runner(plain, settings), scenario, robust)


def _scenario(data: Any, settings: AdviceSettings) -> Scenario:
    """Return the federation and its data; refuse what advice cannot be on."""
    scenario = data if isinstance(data, Scenario) else None
    if isinstance(data, Scenario | OwnData):
        for name, field in settings.options().items():
            value = getattr(settings, name)
            if name in DataSettings.options() and value != field.default:
                raise InvalidValueError(name, value, "left out: the data have been read; give it to read_data")
    else:
        for name in ("client_column", "target_column"):
            if getattr(settings, name) is None:
                raise MissingValueError(name, "a column's name, since data is not the result of read_data")
        data = call_with(read_data, data, settings.shared_with(DataSettings))
    if scenario is not None and scenario.own_data is None:
        allowed = "your own data, or a scenario made from them (Scenario.from_data)"
        raise InvalidValueError("data", "a scenario with drawn streams", allowed)
    rows: OwnData = data if scenario is None else scenario.own_data
    if rows.epochs != 1:
        allowed = "1, since the error on rows that were learned before is no forecast error"
        raise InvalidValueError("epochs", rows.epochs, allowed)
    if scenario is not None and scenario.iterations < rows.iterations:
        allowed = f"{rows.iterations}, since advice is on all rows"
        raise InvalidValueError("iterations", scenario.iterations, allowed)
    return scenario or Scenario.from_data(rows, num_participants=rows.num_clients)


def _compare(runner: Runner, scenario: Scenario, rule: Aggregation) -> Advice:
    """Run every way to learn, judge them, and put the answer together."""
    judge, data, everybody = runner.judge, runner.data, runner.everybody
    is_several = len(everybody) > 1
    every_alone, pooled = runner.lms(), judge.follow(runner.lms(pooled=True))
    whole = runner.federation(everybody, runner.shared())
    together, alone = judge.follow(whole), judge.follow(every_alone)
    plan = follow_advice(runner, whole, every_alone)
    members = runner.mask([k for group in plan.groups for k in group])
    of_members, title = judge.among(members), "federation"
    title += f", {len(plan.groups)} groups" if len(plan.groups) > 1 else ""
    title += f" of {members.sum()} clients" if not members.all() else ""
    federation = replace(plan, name="federation", title=title, errors=np.where(members, plan.errors, alone.errors))
    robust, what_if = ask_what_if(runner, scenario, rule, plan.groups[0], every_alone)
    naive = [judge.follow(way) for way in naive_ways(runner)]
    curved = [judge.follow(way) for way in (random_features(runner), boosted_trees(runner)) if way is not None]
    costs = np.array(whole.costs)
    parts = [whole.at(np.flatnonzero(costs == cost).tolist()) for cost in dict.fromkeys(whole.costs)]
    first = describe(federation, every_alone, of_members, judge)
    gain, best, curved_gains = first.gain, min((federation, together, alone, pooled), key=judge.error), {}
    for way in curved:
        curved_gains[way.name] = judge.gain(way, best)
        best = min(best, way, key=judge.error)
    federates = gain.helps and is_several
    winner, winner_gain = _winner(judge, naive, federation if federates else alone)
    extremes = extreme_rows(data)
    bounded_gain = _bounded_gain(runner, plan) if extremes and is_several else gain
    if winner:
        verdict = "stay alone" if winner == "rls" else "naive"
    elif is_several and not gain.matters:
        verdict = "no clear difference"
    elif is_several and gain.value * bounded_gain.value < 0:
        verdict = "depends on extreme rows"
    else:
        verdict = "federate" if federates else "stay alone"
    others = [describe(way, every_alone, judge, judge) for way in (alone, *parts, pooled, *naive, *curved)]
    recent = slice(judge.first + (judge.blocks - judge.first) // 2, None)
    return Advice(
        verdict=verdict,
        winner=winner,
        winner_gain=winner_gain,
        methods=(others[0], first, *others[1 : len(parts) + 1], *robust, *others[len(parts) + 1 :]),
        groups=tuple(
            ClientGroup(tuple(data.clients[k] for k in group), setting.num_shared, setting.common_stepsize)
            for group, setting in zip(plan.groups, plan.scenarios, strict=True)
        ),
        shared_counts=tuple(sorted(plan.shared_counts)),
        everybody_gain=judge.gain(together, alone),
        recent_gain=of_members.gain(federation, alone, blocks=recent),
        bounded_gain=bounded_gain,
        extreme_rows=extremes,
        pooled_gain=judge.gain(pooled, federation),
        model_gain=judge.gain(min(federation, alone, key=judge.error), naive[-1]),
        rff_gain=curved_gains.get("rff", Gain()),
        boosting_gain=curved_gains.get("boosting", Gain()),
        what_if=what_if,
        newcomer=ask_newcomer(runner, plan.groups[0], plan.scenarios[0]),
        stations=_stations(runner, alone, np.where(members, federation.errors, together.errors), naive[-1]),
        scenario=plan.scenarios[0],
        rows=int(judge.rows.sum()),
        data=data.describe(),
        cautions=tuple(cautions(data)),
        notes=(*data.notes(), *([_HEAVY_NOTE] if runner.is_heavy else [])),
    )


def _winner(judge: Judge, naive: list[Way], recommended: Way) -> tuple[str, Gain]:
    """Return the best naive forecast that is clearly better than the recommendation, or an empty name."""
    gains = {way.name: judge.gain(way, recommended, 1 - 0.05 / len(naive)) for way in naive}
    better = [way for way in naive if gains[way.name].helps]
    best = min(better, key=judge.error).name if better else ""
    return best, gains.get(best, Gain())


def _bounded_gain(runner: Runner, plan: Way) -> Gain:
    """Return the gain of the same groups on each client alone, all tuned again, with targets limited."""
    rows = replace(runner.data, targets=tuple(np.clip(scaled, -BOUND, BOUND) for scaled in runner.data.targets))
    limited = Runner(runner.scenario.replace(data=runner.scenario.data.replace(rows=rows)), runner.settings)
    judge, pairs = limited.judge, zip(plan.groups, plan.scenarios, strict=True)
    ways = [judge.follow(limited.federation(group, [setting.num_shared])) for group, setting in pairs]
    together = replace(ways[0], errors=sum((way.errors for way in ways[1:]), ways[0].errors))
    members = limited.mask([k for group in plan.groups for k in group])
    return judge.among(members).gain(together, judge.follow(limited.lms()))


def _stations(runner: Runner, alone: Way, errors: np.ndarray, average: Way) -> tuple[Station, ...]:
    """Return all clients in the order of the table; `average` is the running mean's forecast."""
    judge, stations, federation = runner.judge, [], replace(alone, errors=errors)
    by_client = zip(*(judge.client_errors(way).tolist() for way in (alone, federation, average)), strict=True)
    gains = judge.client_gains(federation, alone)
    for name, targets, (error, joined, mean), gain in zip(
        runner.data.clients, runner.data.table.targets, by_client, gains, strict=True
    ):
        flag = "" if error < mean else "hard to predict"
        if math.isnan(error) or (math.isfinite(gain.value) and math.isnan(gain.interval[0])):
            flag = "too few rows"
        is_better_alone = gain.matters and gain.value < 0
        note = "; ".join(filter(None, (flag, "better alone" if is_better_alone else "")))
        stations.append(Station(name, len(targets), error, joined, gain, flag, note))
    return tuple(stations)
