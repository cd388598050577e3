"""Asks a table whether federating helps: what is compared, run and judged, and how the answer is put together."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError, MissingValueError, NotCoveredError
from psofed.common.notices import notify
from psofed.common.settings import call_with, takes
from psofed.data.own_data import OwnData, read_data
from psofed.engine.compiling import is_cold
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Aggregation
from psofed.parts.registry import find_part
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.settings.data import DataSettings
from psofed.simulation.monte_carlo import check_covered
from psofed.studies.advice.advice import Advice
from psofed.studies.advice.errors import Trier
from psofed.studies.advice.judging import Gain, Judge, Judged
from psofed.studies.advice.methods import (
    ClientGroup,
    LearningMethod,
    describe_stations,
    federation_method,
    values_sent,
)
from psofed.studies.advice.rivals import make_rivals
from psofed.studies.advice.search import Federated, GroupSearch
from psofed.studies.advice.tuning import Tuner
from psofed.studies.advice.what_if import AttackPlan, ask_what_if

if TYPE_CHECKING:
    import pandas


@takes(AdviceSettings)
def advise(
    data: "Scenario | OwnData | str | Path | pandas.DataFrame | Any", settings: AdviceSettings
) -> Advice:
    """Find out whether the clients of a table should federate, who with whom, how, and with what confidence.

    Every way to learn (each client alone, federations of all clients and of groups, with each number of shared
    parameters, all data pooled) is run at many stepsizes. In each block of time it uses the setting that was best
    before, and is judged by what follows. Naive forecasts and recursive least squares are judged on the same rows.

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
    scenario = data if isinstance(data, Scenario) else None
    if isinstance(data, Scenario | OwnData):
        for name, field in settings.options().items():
            given = getattr(settings, name)
            if name in DataSettings.options() and given != field.default:
                raise InvalidValueError(
                    name, given, "left out: the data have been read; give it to read_data"
                )
    if scenario is not None:
        data = scenario.own_data
        if data is None:
            raise InvalidValueError(
                "data",
                "a scenario with drawn streams",
                "your own data, or a scenario made from them (Scenario.from_data)",
            )
    elif not isinstance(data, OwnData):
        columns = {"client_column": settings.client_column, "target_column": settings.target_column}
        for name, column in columns.items():
            if column is None:
                raise MissingValueError(name, "a column's name, since data is not the result of read_data")
        data = call_with(read_data, data, settings.shared_with(DataSettings))
    if data.epochs != 1:
        raise InvalidValueError(
            "epochs", data.epochs, "1, since the error on rows that were learned before is no forecast error"
        )
    if scenario is not None and scenario.iterations < data.iterations:
        allowed = f"{data.iterations}, since advice is on all rows"
        raise InvalidValueError("iterations", scenario.iterations, allowed)
    scenario = scenario or Scenario.from_data(data, num_participants=data.num_clients)
    if scenario.learner.kind != "lms":
        raise NotCoveredError(
            f'psofed.advise compares ways to run LMS, not learner.kind = "{scenario.learner.kind}"'
        )
    rule = settings.rule
    if rule is None:
        rule = "median" if isinstance(scenario.aggregation, Mean) else scenario.aggregation
    robust = find_part("aggregation", rule, "rule")() if isinstance(rule, str) else rule
    _ = scenario.common_stepsize  # what is tried is one number
    plan = AttackPlan.of(scenario, settings)
    attack = plan.within(range(scenario.num_clients))
    scenario = scenario.replace(attack=None, aggregation="mean")
    for part in (scenario, scenario.replace(aggregation=robust, attack=attack)):
        check_covered(part)
    if is_cold():
        notify("compiling the kernels (once on this machine, some seconds)")
    return _compare(data, Trier(scenario, settings), robust, plan)


def _compare(data: OwnData, trier: Trier, robust: Aggregation, plan: AttackPlan) -> Advice:
    """Run every way to learn, judge them, and put the answer together."""
    judge, base = trier.judge, trier.scenario
    several = base.num_clients > 1
    tuner = Tuner(trier)
    grid, alone_errors = tuner.tune(
        "each alone", trier.stepsizes(base.iterations), lambda grid: trier.lms(grid, False)
    )
    steps = base.iterations * base.num_clients
    pooled_grid, pooled_errors = tuner.tune(
        "the pooled model", trier.stepsizes(steps), lambda grid: trier.lms(grid, True)
    )
    alone, pooled = judge.choose(alone_errors), judge.choose(pooled_errors)
    whole = tuner.federation(trier.shared() if several else (base.dimension,))
    together = judge.choose(whole.errors, whole.costs)
    everybody_gain = judge.gain(together, alone)
    used = np.array([grid[alone.last], whole.scenarios[together.last].common_stepsize])
    near = np.unique([s.common_stepsize for s in whole.scenarios])
    near = near[(near > 0.9 * used.min() / trier.factor) & (near < 1.1 * used.max() * trier.factor)]
    search = GroupSearch(trier, data.targets, whole, alone_errors, near).run()
    chosen, gain = search, judge.gain(search.judged, alone, members=search.members)
    few = 2 * sum(len(group) for group, _ in search.groups) < base.num_clients
    if not search.groups or math.isnan(gain.value) or (few and not (gain.matters and gain.value > 0)):
        # No group is worth a sentence: the answer is about everybody.
        everybody = tuple(range(base.num_clients)), whole.scenarios[together.last]
        counts = frozenset(whole.costs[pick] for pick in together.picks)
        members = np.ones(together.errors.shape, bool)
        chosen, gain = Federated(together, members, (everybody,), counts), everybody_gain

    def plain(name: str, title: str, judged: Judged, stepsize: float | None = None) -> LearningMethod:
        return LearningMethod(name, title, None, stepsize, judge.error(judged), judge.gain(judged, alone))

    own = replace(
        plain("alone", "each alone, LMS", alone, float(grid[alone.last])), gain=Gain(0.0, (0.0, 0.0))
    )
    methods = [own, _federation_method(chosen, judge.error(chosen.judged), gain, base.num_clients)]
    for count in dict.fromkeys(whole.costs):
        these = [i for i, other in enumerate(whole.costs) if other == count]
        judged = judge.choose(whole.errors[these])
        setting = whole.scenarios[these[judged.last]]
        error, own_gain = judge.error(judged), judge.gain(judged, alone)
        methods.append(federation_method("everybody", "all together", setting, error, own_gain))
    robust_method, what_if = ask_what_if(trier, plan, robust, chosen.groups[0][0], alone_errors) or (
        None,
        None,
    )
    if robust_method is not None:
        methods.append(robust_method)
    methods.append(plain("pooled", "all data pooled", pooled, float(pooled_grid[pooled.last])))
    rivals = {}
    for name, (titles, errors) in make_rivals(data, trier.features, trier.blocks, trier.is_heavy).items():
        rivals[name] = judged = judge.choose(errors)
        methods.append(plain(name, titles[judged.last], judged))
    federates = several and gain.matters and gain.value > 0
    winner, winner_gain = _winner(judge, rivals, chosen.judged if federates else alone)
    is_left = ~np.isin(range(base.num_clients), [k for group, _ in chosen.groups for k in group])
    shown = Judged(np.where(is_left, together.errors, chosen.judged.errors), 0)
    names = data.table.clients
    return Advice(
        verdict=_verdict(gain, winner, several),
        winner=winner,
        winner_gain=winner_gain,
        methods=tuple(methods),
        groups=tuple(
            ClientGroup(tuple(names[k] for k in group), setting.num_shared, setting.common_stepsize)
            for group, setting in chosen.groups
        ),
        shared_counts=tuple(sorted(chosen.counts)),
        everybody_gain=everybody_gain,
        recent_gain=judge.gain(chosen.judged, alone, members=chosen.members, recent=True),
        what_if=what_if,
        stations=describe_stations(
            names, [len(y) for y in data.table.targets], judge, alone, shown, rivals["average"]
        ),
        scenario=chosen.groups[0][1],
        rows=int(judge.rows.sum()),
        data=data.describe(),
        notes=(*data.notes(), *tuner.notes, *_notes(trier, names)),
        pooled_gain=judge.gain(pooled, chosen.judged),
        model_gain=judge.gain(min(chosen.judged, alone, key=judge.error), rivals["average"]),
    )


def _federation_method(chosen: Federated, error: float, gain: Gain, num_clients: int) -> LearningMethod:
    largest, scenario = chosen.groups[0]
    title = "federation"
    if len(chosen.groups) > 1:
        title += f", {len(chosen.groups)} groups"
    elif len(largest) < num_clients:
        title += f" of {len(largest)} clients"
    sent = sum(values_sent(setting) for _, setting in chosen.groups)
    shared, stepsize = scenario.num_shared, scenario.common_stepsize
    return LearningMethod("federation", title, shared, stepsize, error, gain, sent, "mean")


def _winner(judge: Judge, rivals: dict[str, Judged], recommended: Judged) -> tuple[str, Gain]:
    """Return the best rival that is clearly better than the recommendation, or an empty name."""
    confidence = 1 - 0.05 / len(rivals)
    gains = {name: judge.gain(judged, recommended, confidence) for name, judged in rivals.items()}
    better = [name for name, gain in gains.items() if gain.matters and gain.value > 0]
    best = min(better, key=lambda name: judge.error(rivals[name]), default="")
    return best, gains.get(best, Gain(math.nan, (math.nan, math.nan)))


def _notes(trier: Trier, names: tuple[str, ...]) -> Iterator[str]:
    unjudged = [name for name, rows in zip(names, trier.judge.rows, strict=True) if not rows]
    if unjudged:
        yield (
            f"{len(unjudged)} clients ({', '.join(unjudged[:3])}{', …' if len(unjudged) > 3 else ''}) learn, "
            "but their rows end before the judged part begins."
        )
    if trier.is_heavy:
        yield "the table is large: fewer stepsizes and numbers of shared parameters were tried."


def _verdict(gain: Gain, winner: str, several: bool) -> str:
    if winner:
        return "stay alone" if winner == "rls" else "naive"
    if not several:
        return "stay alone"
    if not gain.matters:
        return "no clear difference"
    return "federate" if gain.value > 0 else "stay alone"
