"""Asks a table whether federating helps: what is compared, run and judged, and how the answer is put together."""

import math
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
from psofed.studies.advice.methods import ClientGroup, LearningMethod, federation_method, values_sent
from psofed.studies.advice.rivals import make_rivals
from psofed.studies.advice.search import Federated, GroupSearch
from psofed.studies.advice.stations import describe_stations
from psofed.studies.advice.tuning import Tuner
from psofed.studies.advice.what_if import AttackPlan, ByzantineWhatIf, ask_what_if

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
    plan = AttackPlan(scenario.attack, settings.byzantine, settings.seed, scenario.client_names)
    attack = plan.within(range(scenario.num_clients))
    scenario = scenario.replace(attack=None, aggregation="mean")
    for part in (scenario, scenario.replace(aggregation=robust, attack=attack)):
        check_covered(part)
    if is_cold():
        notify("compiling the kernels (once on this machine, some seconds)")
    return _Adviser(data, Trier(scenario, settings), robust, plan).advise()


class _Adviser:
    """Runs what is to be compared, and puts the answer together."""

    def __init__(self, data: OwnData, trier: Trier, robust: Aggregation, plan: AttackPlan) -> None:
        self._data, self._trier, self._robust, self._plan = data, trier, robust, plan
        self._scenario = trier.scenario
        self._judge = Judge(trier.blocks)
        self._notes = data.notes()

    def advise(self) -> Advice:
        trier, judge, base = self._trier, self._judge, self._scenario
        several = base.num_clients > 1
        steps = base.iterations
        tuner = Tuner(trier)
        grid, alone_errors = tuner.tune(
            "each alone", trier.stepsizes(steps), lambda grid: trier.lms(grid, False)
        )
        pooled_grid, pooled_errors = tuner.tune(
            "the pooled model", trier.stepsizes(steps * base.num_clients), lambda grid: trier.lms(grid, True)
        )
        alone, pooled, average = map(judge.choose, (alone_errors, pooled_errors, trier.average()))
        whole = tuner.federation(trier.shared() if several else (base.dimension,))
        self._notes += tuner.notes
        together = judge.choose(whole.errors, whole.costs)
        used = np.array([grid[alone.last], whole.scenarios[together.last].common_stepsize])
        near = np.unique([s.common_stepsize for s in whole.scenarios])
        near = near[(near > 0.9 * used.min() / trier.factor) & (near < 1.1 * used.max() * trier.factor)]
        search = GroupSearch(trier, self._data.targets, whole, alone_errors, near).run()
        chosen, gain = search, judge.gain(search.judged, alone, members=search.members)
        few = 2 * sum(len(group) for group, _ in search.groups) < base.num_clients
        if not search.groups or math.isnan(gain.value) or (few and not (gain.matters and gain.value > 0)):
            # No group is worth a sentence: the answer is about everybody.
            everybody = tuple(range(base.num_clients)), whole.scenarios[together.last]
            counts = frozenset(whole.costs[pick] for pick in together.picks)
            chosen = Federated(
                together, np.ones(together.errors.shape, bool), (everybody,), search.laws, counts
            )
            gain = judge.gain(together, alone)
        own = LearningMethod(
            "alone",
            "each alone, LMS",
            None,
            float(grid[alone.last]),
            judge.error(alone),
            Gain(0.0, (0.0, 0.0)),
        )
        federation = self._federation_method(chosen, gain, several)
        methods = [own, federation]
        for count in dict.fromkeys(whole.costs):
            these = [i for i, other in enumerate(whole.costs) if other == count]
            judged = judge.choose(whole.errors[these])
            setting = whole.scenarios[these[judged.last]]
            error, own_gain = judge.error(judged), judge.gain(judged, alone)
            methods.append(federation_method("everybody", "all together", setting, error, own_gain))
        what_if: ByzantineWhatIf | None = None
        asked = ask_what_if(trier, self._plan, self._robust, chosen.groups[0][0], alone_errors)
        if asked is not None:
            robust, what_if = asked
            methods.append(robust)
        rivals = {"pooled": pooled}
        methods.append(
            self._plain("pooled", "all data pooled", pooled, alone, float(pooled_grid[pooled.last]))
        )
        for rival in make_rivals(self._data, trier.features, trier.blocks, trier.is_heavy):
            rivals[rival.name] = judge.choose(rival.errors)
            methods.append(
                self._plain(rival.name, rival.titles[rivals[rival.name].last], rivals[rival.name], alone)
            )
        rivals["average"] = average
        methods.append(self._plain("average", "running mean", average, alone))
        federates = several and gain.matters and gain.value > 0
        recommended = chosen.judged if federates else alone
        winner, winner_gain = self._winner(rivals, recommended)
        scenario = chosen.groups[0][1]
        left = np.ones(base.num_clients, bool)
        for group, _ in chosen.groups:
            left[list(group)] = False
        shown = Judged(np.where(left, together.errors, chosen.judged.errors), 0)
        names = self._data.table.clients
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
            everybody_gain=judge.gain(together, alone),
            recent_gain=judge.gain(chosen.judged, alone, members=chosen.members, recent=True),
            what_if=what_if,
            stations=describe_stations(
                self._data, judge, trier.features, search.laws, alone, shown, rivals["rls"], average
            ),
            scenario=scenario,
            rows=int(judge.rows.sum()),
            data=self._data.describe(),
            notes=tuple(self._all_notes()),
            pooled_gain=judge.gain(pooled, chosen.judged),
            model_gain=judge.gain(min(chosen.judged, alone, key=judge.error), average),
        )

    def _federation_method(self, chosen: Federated, gain: Gain, several: bool) -> LearningMethod:
        largest, scenario = chosen.groups[0]
        members = sum(len(group) for group, _ in chosen.groups)
        title = "federation"
        if len(chosen.groups) > 1:
            title += f", {len(chosen.groups)} groups"
        elif len(largest) < self._scenario.num_clients:
            title += f" of {members} clients"
        sent = sum(values_sent(setting) for _, setting in chosen.groups)
        return LearningMethod(
            "federation",
            title,
            scenario.num_shared,
            scenario.common_stepsize,
            self._judge.error(chosen.judged),
            gain,
            sent,
            "mean",
        )

    def _plain(
        self, name: str, title: str, judged: Judged, alone: Judged, stepsize: float | None = None
    ) -> LearningMethod:
        return LearningMethod(
            name, title, None, stepsize, self._judge.error(judged), self._judge.gain(judged, alone)
        )

    def _winner(self, rivals: dict[str, Judged], recommended: Judged) -> tuple[str, Gain]:
        """Return the best rival that is clearly better than the recommendation, or an empty name."""
        able = {name: judged for name, judged in rivals.items() if name != "pooled"}
        confidence = 1 - 0.05 / len(able)
        gains = {name: self._judge.gain(judged, recommended, confidence) for name, judged in able.items()}
        better = [name for name, gain in gains.items() if gain.matters and gain.value > 0]
        best = min(better, key=lambda name: self._judge.error(able[name]), default="")
        return best, gains.get(best, Gain(math.nan, (math.nan, math.nan)))

    def _all_notes(self) -> list[str]:
        lines = self._notes
        unjudged = [n for n, rows in zip(self._data.table.clients, self._judge.rows, strict=True) if not rows]
        if unjudged:
            lines.append(
                f"{len(unjudged)} clients ({', '.join(unjudged[:3])}{', …' if len(unjudged) > 3 else ''}) learn, "
                "but their rows end before the judged part begins."
            )
        if self._trier.is_heavy:
            lines.append("the table is large: fewer stepsizes and numbers of shared parameters were tried.")
        return lines


def _verdict(gain: Gain, winner: str, several: bool) -> str:
    if winner:
        return "stay alone" if winner == "rls" else "naive"
    if not several:
        return "stay alone"
    if not gain.matters:
        return "no clear difference"
    return "federate" if gain.value > 0 else "stay alone"
