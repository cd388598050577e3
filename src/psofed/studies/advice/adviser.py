"""Asks a table whether federating helps: what is compared, run and judged, and how the answer is put together."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError, MissingValueError, NotCoveredError
from psofed.common.notices import notify
from psofed.common.settings import call_with, takes
from psofed.common.types import ProgressCallback
from psofed.data.own_data import OwnData, read_data
from psofed.engine.compiling import is_cold
from psofed.parts.aggregations.mean import Mean
from psofed.parts.attacks import SignFlip
from psofed.parts.base import Aggregation, Attack
from psofed.parts.registry import find_part
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.settings.data import DataSettings
from psofed.simulation.monte_carlo import check_covered
from psofed.studies.advice.advice import Advice, LearningMethod
from psofed.studies.advice.errors import Trier
from psofed.studies.advice.judging import Gain, Judge, Judged
from psofed.studies.advice.stations import describe_stations

if TYPE_CHECKING:
    import pandas

TRIALS = 16
WORTH_MENTIONING = 0.01
"""A gain below one per cent makes no difference, however sure it is."""


@takes(AdviceSettings)
def advise(
    data: "Scenario | OwnData | str | Path | pandas.DataFrame | Any", settings: AdviceSettings
) -> Advice:
    """Find out whether the clients of a table should federate, how, and with what confidence.

    Every way to learn (each client alone, federations with each number of shared entries, all data pooled) is run at
    many stepsizes. In each block of time it uses the stepsize that was best before, and is judged by what follows.

    Parameters
    ----------
    data : OwnData, Scenario, path or data frame
        What :func:`psofed.read_data` or :func:`psofed.from_arrays` returned, for a federation in which all clients take
        part; a scenario with such data (:meth:`psofed.Scenario.from_data`), for a federation as it describes; or a
        table, with `client_column`, `target_column`, `features` and `min_rows` as in `read_data`.

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
    attack = _make_attack(scenario, settings.byzantine, settings.seed)
    scenario = scenario.replace(attack=None, aggregation="mean")
    for part in (scenario, scenario.replace(aggregation=robust, attack=attack)):
        check_covered(part)
    if is_cold():
        notify("compiling the kernels (once on this machine, some seconds)")
    trier = Trier(scenario, settings.trials, settings.seed, settings.executor)
    return _Adviser(data, scenario, robust, attack, trier).advise(settings.progress)


def _make_attack(scenario: Scenario, byzantine: float, seed: int) -> Attack | None:
    """Return the attack of the what-if analysis; Byzantine clients are drawn unless the scenario names them."""
    clients = scenario.num_clients
    if len(scenario.attacks) > 1:
        return scenario.attack
    if scenario.attack is not None and (
        scenario.attack.clients or scenario.attack.byzantine_set == "redrawn"
    ):
        return scenario.attack
    count = min(math.ceil(byzantine * clients - 1e-9), clients - 1)
    if count == 0:
        return None
    who = np.random.default_rng((seed, 12)).choice(clients, count, replace=False)
    numbers = tuple(int(k) for k in np.sort(who))
    base = scenario.attack or SignFlip(num_byzantine=count, of="model", probability=1.0)
    return base.replace(clients=numbers)


class _Adviser:
    """Runs what is to be compared, and puts the answer together."""

    def __init__(
        self, data: OwnData, scenario: Scenario, robust: Aggregation, attack: Attack | None, trier: Trier
    ) -> None:
        self._data, self._scenario, self._robust, self._attack = data, scenario, robust, attack
        self._trier = trier
        self._judge = Judge(trier.blocks)

    def advise(self, progress: ProgressCallback | None) -> Advice:
        trier, judge = self._trier, self._judge
        alone_grid, alone_errors, pooled_grid, pooled_errors = trier.lms()
        alone, pooled = judge.choose(alone_errors), judge.choose(pooled_errors)
        average = judge.fixed(trier.average())
        groups = self._groups()
        runs = [scenario for group in groups.values() for scenario in group]
        errors = trier.federations(runs, lambda done: progress(done, len(runs)) if progress else None)
        by_group: dict[str, NDArray[np.float64]] = {}
        at = 0
        for name, group in groups.items():
            by_group[name] = np.array(errors[at : at + len(group)])
            at += len(group)
        plain = groups["plain"]
        federation = judge.choose(by_group["plain"], [s.num_shared for s in plain])
        best = self._method(judge, federation, alone, plain, "federation")
        shared = []
        for count in dict.fromkeys(s.num_shared for s in plain):
            these = [i for i, s in enumerate(plain) if s.num_shared == count]
            judged = judge.choose(by_group["plain"][these])
            shared.append(self._method(judge, judged, alone, [plain[i] for i in these], "federation"))
        robust = None
        if "robust" in groups:
            judged = judge.choose(by_group["robust"], [s.num_shared for s in groups["robust"]])
            robust = self._method(judge, judged, alone, groups["robust"], "federation")
        lies, byzantine = self._lies(groups, by_group, alone_errors)
        single = self._data.num_clients == 1
        better = federation if judge.error(federation) < judge.error(alone) else alone
        own = LearningMethod("alone", "each station alone", None, float(alone_grid[alone.last]),
                     judge.error(alone), Gain(0.0, (0.0, 0.0)))  # fmt: skip
        return Advice(
            verdict="stay alone" if single else _verdict(best.gain),
            federation=best,
            alone=own,
            pooled=LearningMethod("pooled", "all data pooled", None, float(pooled_grid[pooled.last]),
                          judge.error(pooled), judge.gain(pooled, alone)),
            average=LearningMethod("average", "running mean, no model", None, None,
                           judge.error(average), judge.gain(average, alone)),
            shared=tuple(shared),
            robust=robust,
            lies=lies,
            byzantine=byzantine,
            attack={} if self._attack is None else self._attack.to_mapping(),
            stations=describe_stations(self._data, judge, alone, federation),
            scenario=plain[federation.last],
            rows=int(judge.rows.sum()),
            data=self._data.describe(),
            notes=tuple(self._notes()),
            pooled_gain=judge.gain(pooled, federation),
            model_gain=judge.gain(better, average),
        )  # fmt: skip

    def _groups(self) -> dict[str, list[Scenario]]:
        """Return what is to be run: each group is a federation with all its settings."""
        base, trier = self._scenario, self._trier
        grid = [float(mu) for mu in trier.stepsizes(base.iterations, base.num_participants)]
        several = self._data.num_clients > 1

        def settings(scenario: Scenario, few: bool) -> list[Scenario]:
            counts = trier.shared(few) if several else (base.dimension,)
            return [scenario.replace(num_shared=m, stepsize=mu) for m in counts for mu in grid]

        groups = {"plain": settings(base, few=False)}
        if self._attack is not None:
            robust = base.replace(aggregation=self._robust)
            groups["robust"] = settings(robust, few=True)
            groups["lies"] = settings(base.replace(attack=self._attack), few=True)
            groups["robust lies"] = settings(robust.replace(attack=self._attack), few=True)
        return groups

    def _lies(
        self,
        groups: dict[str, list[Scenario]],
        errors: dict[str, NDArray[np.float64]],
        alone_errors: NDArray[np.float64],
    ) -> tuple[tuple[LearningMethod, ...], tuple[str, ...]]:
        if self._attack is None:
            return (), ()
        names = self._data.table.clients
        lying = self._attack.byzantine_mask(len(names), names) & (self._attack.byzantine_set == "fixed")
        judge = Judge(self._trier.blocks, ~lying)
        alone = judge.choose(alone_errors)
        found = []
        for name in ("lies", "robust lies"):
            judged = judge.choose(errors[name], [s.num_shared for s in groups[name]])
            found.append(self._method(judge, judged, alone, groups[name], "federation"))
        return tuple(found), tuple(name for name, lies in zip(names, lying, strict=True) if lies)

    def _method(
        self, judge: Judge, judged: Judged, alone: Judged, settings: Sequence[Scenario], name: str
    ) -> LearningMethod:
        chosen = settings[judged.last]
        sent = measure_communication(chosen)
        rule = chosen.aggregation.kind
        title = f"federation, M = {chosen.num_shared}" + ("" if rule == "mean" else f", {rule}")
        if chosen.attack is not None:
            title += ", some lying"
        numbers = sent.numbers_down + sent.numbers_up
        error, gain = judge.error(judged), judge.gain(judged, alone)
        return LearningMethod(
            name, title, chosen.num_shared, chosen.common_stepsize, error, gain, numbers, rule
        )

    def _notes(self) -> list[str]:
        lines = self._data.notes()
        unjudged = [n for n, rows in zip(self._data.table.clients, self._judge.rows, strict=True) if not rows]
        if unjudged:
            lines.append(
                f"{len(unjudged)} clients ({', '.join(unjudged[:3])}{', …' if len(unjudged) > 3 else ''}) learn, "
                "but their rows end before the judged part begins."
            )
        if self._trier.is_heavy:
            lines.append("the table is large: fewer stepsizes and numbers of shared entries were tried.")
        return lines


def _verdict(gain: Gain) -> str:
    if not gain.is_clear or abs(gain.value) < WORTH_MENTIONING:
        return "no clear difference"
    return "federate" if gain.value > 0 else "stay alone"
