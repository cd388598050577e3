"""Asks a table whether federating helps: what is compared, run and judged, and how the answer is put together."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError, MissingValueError, NotCoveredError
from psofed.common.notices import notify
from psofed.common.settings import call_with, takes
from psofed.data.own_data import OwnData, read_data
from psofed.data.standardise import running_deviation
from psofed.engine.compiling import is_cold
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Aggregation
from psofed.parts.registry import find_part
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.settings.data import DataSettings
from psofed.simulation.monte_carlo import check_covered
from psofed.studies.advice.advice import Advice, ClientGroup, Station, describe, values_sent
from psofed.studies.advice.cautions import bounded, cautions, extreme_rows
from psofed.studies.advice.groups import Plan, follow_advice
from psofed.studies.advice.judging import Gain, Judge, Judged, Way
from psofed.studies.advice.newcomer import ask_newcomer
from psofed.studies.advice.relation import boosted_trees, random_features
from psofed.studies.advice.running import Runner, least_squares_errors
from psofed.studies.advice.what_if import Threat, ask_what_if

if TYPE_CHECKING:
    import pandas

_FORGETTING = (1.0, 0.995, 0.98, 0.95)
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
    threat = Threat.of(scenario, settings, robust)
    scenario = scenario.replace(attack=None, aggregation="mean")
    for part in (scenario, scenario.replace(aggregation=robust, attack=threat.on(scenario.num_clients))):
        check_covered(part)
    if is_cold():
        notify("compiling the kernels (once on this machine, some seconds)")
    return _compare(Runner(scenario, settings), threat)


def _scenario(data: Any, settings: AdviceSettings) -> Scenario:
    """Return the federation and its data; refuse what advice cannot be on."""
    if isinstance(data, Scenario | OwnData):
        for name, field in settings.options().items():
            value = getattr(settings, name)
            if name in DataSettings.options() and value != field.default:
                raise InvalidValueError(name, value, "left out: the data have been read; give it to read_data")
    scenario = data if isinstance(data, Scenario) else None
    if scenario is not None:
        if scenario.own_data is None:
            allowed = "your own data, or a scenario made from them (Scenario.from_data)"
            raise InvalidValueError("data", "a scenario with drawn streams", allowed)
        data = scenario.own_data
    elif not isinstance(data, OwnData):
        for name in ("client_column", "target_column"):
            if getattr(settings, name) is None:
                raise MissingValueError(name, "a column's name, since data is not the result of read_data")
        data = call_with(read_data, data, settings.shared_with(DataSettings))
    if data.epochs != 1:
        allowed = "1, since the error on rows that were learned before is no forecast error"
        raise InvalidValueError("epochs", data.epochs, allowed)
    if scenario is not None and scenario.iterations < data.iterations:
        allowed = f"{data.iterations}, since advice is on all rows"
        raise InvalidValueError("iterations", scenario.iterations, allowed)
    return scenario or Scenario.from_data(data, num_participants=data.num_clients)


def _compare(runner: Runner, threat: Threat) -> Advice:
    """Run every way to learn, judge them, and put the answer together."""
    judge, data, everybody = runner.judge, runner.data, runner.everybody
    is_several = len(everybody) > 1
    alone, pooled = runner.lms(runner.stepsizes()), runner.lms(runner.stepsizes(), pooled=True)
    whole = runner.federation(everybody, runner.stepsizes(runner.scenario.num_participants), runner.shared())
    together, own = judge.choose(whole), judge.choose(alone)
    plan = _follow(runner, whole, alone)
    members = np.isin(everybody, [k for group, _ in plan.groups for k in group])
    of_members, judged = (Judge(runner.blocks, members), Judged(plan.errors[judge.first :]).filled(members, own))
    title = "federation" + (f", {len(plan.groups)} groups" if len(plan.groups) > 1 else "")
    title += f" of {members.sum()} clients" if not members.all() else ""
    errors = np.concatenate([np.zeros_like(plan.errors[: judge.first]), judged.errors])
    federation = Way("federation", title, errors[None], (plan.groups[0][1],))
    robust, what_if = ask_what_if(runner, threat, plan.groups[0][0], alone)
    rivals, features, trees = _rivals(runner), random_features(runner), boosted_trees(runner)
    parts = [whole.only(count) for count in dict.fromkeys(whole.costs)]
    others = [way for way in (pooled, *rivals, features, trees) if way is not None]
    first = describe(federation, alone, of_members, judge)
    methods = (
        describe(alone, alone, judge, judge),
        replace(first, numbers=sum(values_sent(setting) for _, setting in plan.groups)),
        *(describe(way, alone, judge, judge) for way in parts),
        *robust,
        *(describe(way, alone, judge, judge) for way in others),
    )
    best = min((judged, together, own, judge.choose(pooled)), key=judge.error)
    rff_gain = boosting_gain = Gain()
    if features is not None:
        curved = judge.choose(features)
        rff_gain, best = judge.gain(curved, best), min(best, curved, key=judge.error)
    if trees is not None:
        boosting_gain = judge.gain(judge.choose(trees), best)
    gain, average, extremes = first.gain, judge.choose(rivals[-1]), extreme_rows(data)
    federates = gain.helps and is_several
    winner, winner_gain = _winner(judge, rivals, judged if federates else own)
    bounded_gain = _bounded_gain(runner, plan) if extremes and is_several else gain
    if winner:
        verdict = "stay alone" if winner == "rls" else "naive"
    elif is_several and not gain.matters:
        verdict = "no clear difference"
    elif is_several and gain.value * bounded_gain.value < 0:
        verdict = "depends on extreme rows"
    else:
        verdict = "federate" if federates else "stay alone"
    return Advice(
        verdict=verdict,
        winner=winner,
        winner_gain=winner_gain,
        methods=methods,
        groups=tuple(
            ClientGroup(tuple(data.clients[k] for k in group), setting.num_shared, setting.common_stepsize)
            for group, setting in plan.groups
        ),
        shared_counts=tuple(sorted(plan.shared_counts)),
        everybody_gain=judge.gain(together, own),
        recent_gain=of_members.gain(judged, own, recent=True),
        bounded_gain=bounded_gain,
        extreme_rows=extremes,
        pooled_gain=judge.gain(judge.choose(pooled), judged),
        model_gain=judge.gain(min(judged, own, key=judge.error), average),
        rff_gain=rff_gain,
        boosting_gain=boosting_gain,
        what_if=what_if,
        newcomer=ask_newcomer(runner, *plan.groups[0]),
        stations=_stations(runner, own, judged.filled(members, together), average),
        scenario=plan.groups[0][1],
        rows=int(judge.rows.sum()),
        data=data.describe(),
        cautions=tuple(cautions(data)),
        notes=(*data.notes(), *([_HEAVY_NOTE] if runner.is_heavy else [])),
    )


def _follow(runner: Runner, whole: Way, alone: Way) -> Plan:
    """Return the plan that the answer is about: of everybody if no group is worth a sentence."""
    judge = runner.judge
    together, own = judge.choose(whole), judge.choose(alone)
    grid = np.unique([scenario.common_stepsize for scenario in whole.scenarios])
    used = [alone.stepsizes[own.last], whole.scenarios[together.last].common_stepsize]
    plan = follow_advice(runner, whole, alone, grid[(grid > min(used) / 2) & (grid < max(used) * 2)])
    members = np.isin(runner.everybody, [k for group, _ in plan.groups for k in group])
    gain = Judge(runner.blocks, members).gain(Judged(plan.errors[judge.first :]), own)
    if not math.isnan(gain.value) and (2 * members.sum() >= members.size or gain.helps):
        return plan
    errors = np.zeros_like(plan.errors)
    errors[judge.first :] = together.errors
    counts = frozenset(whole.costs[pick] for pick in together.picks)
    return Plan(errors, ((runner.everybody, whole.scenarios[together.last]),), counts)


def _rivals(runner: Runner) -> tuple[Way, ...]:
    """Run forecasts that every client could make alone: the last value, recursive least squares, the running mean."""
    data, blocks = runner.data, runner.blocks
    last, mean = np.zeros((2, runner.scenario.iterations, data.num_clients))
    for k, (raw, scaled) in enumerate(zip(data.table.targets, data.targets, strict=True)):
        count = len(scaled)
        # Targets are scaled by their running mean and deviation, so they are the running mean's errors.
        mean[:count, k] = scaled**2
        last[:count, k] = (np.diff(raw)[-count:] / running_deviation(raw)[-count - 1 : -1]) ** 2
    squares = least_squares_errors(runner.features, data.targets, _FORGETTING)
    return (
        Way("persistence", "last value", blocks.sums(last[None])),
        Way("rls", "each alone, RLS", blocks.sums(squares)),
        Way("average", "running mean", blocks.sums(mean[None])),
    )


def _winner(judge: Judge, rivals: Sequence[Way], recommended: Judged) -> tuple[str, Gain]:
    """Return the best rival that is clearly better than the recommendation, or an empty name."""
    ways = {way.name: judge.choose(way) for way in rivals}
    gains = {name: judge.gain(way, recommended, 1 - 0.05 / len(ways)) for name, way in ways.items()}
    better = [name for name, gain in gains.items() if gain.helps]
    best = min(better, key=lambda name: judge.error(ways[name]), default="")
    return best, gains.get(best, Gain())


def _bounded_gain(runner: Runner, plan: Plan) -> Gain:
    """Return the gain of the same groups on each client alone, all tuned again, with targets limited."""
    rows = replace(runner.data, targets=bounded(runner.data))
    limited = Runner(runner.scenario.replace(data=runner.scenario.data.replace(rows=rows)), runner.settings)
    grid, own = limited.stepsizes(runner.scenario.num_participants), limited.lms(limited.stepsizes())
    errors = [
        limited.judge.choose(limited.federation(group, grid, [setting.num_shared])).errors
        for group, setting in plan.groups
    ]
    judge = Judge(limited.blocks, np.isin(limited.everybody, [k for group, _ in plan.groups for k in group]))
    return judge.gain(Judged(np.sum(errors, axis=0)), judge.choose(own))


def _stations(runner: Runner, alone: Judged, federation: Judged, average: Judged) -> tuple[Station, ...]:
    """Return all clients in the order of the table; `average` is the running mean's forecast."""
    judge, stations = runner.judge, []
    errors = zip(*(judge.client_errors(way).tolist() for way in (alone, federation, average)), strict=True)
    gains = judge.client_gains(federation, alone)
    for name, targets, (error, joined, mean), gain in zip(
        runner.data.clients, runner.data.table.targets, errors, gains, strict=True
    ):
        flag = "" if error < mean else "hard to predict"
        if math.isnan(error) or (math.isfinite(gain.value) and math.isnan(gain.interval[0])):
            flag = "too few rows"
        stations.append(Station(name, len(targets), error, joined, gain, flag))
    return tuple(stations)
