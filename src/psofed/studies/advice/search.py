"""Who should federate with whom: groups chosen from the past only, and judged by what follows.

After each quarter of the time the clients are grouped by their laws on the rows so far
(:mod:`psofed.studies.advice.groups`), and those whose errors stand out are put by themselves. From then on the adviser
can federate everybody, or each group by itself. A group of one, a group that was seen to lose and a minority that was
not seen to gain stay alone. In every block it does what had the smaller error in the blocks before. Its errors are
those of following the advice at the time, so an interval of these errors has paid for the search.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.results.outliers import robust_scores, stands_out
from psofed.scenario import Scenario
from psofed.studies.advice.errors import Trier
from psofed.studies.advice.groups import Groups, estimate_laws, split_by_law
from psofed.studies.advice.judging import Judge, Judged

GroupSetting = tuple[tuple[int, ...], Scenario]


@dataclass(frozen=True, eq=False)
class Tried:
    """A federation of some clients with all its settings: errors (settings, blocks, K), zero for all others."""

    scenarios: Sequence[Scenario]
    errors: FloatArray

    @property
    def costs(self) -> list[int]:
        """The shared parameters, which decide between settings that are equally good."""
        return [scenario.num_shared for scenario in self.scenarios]


@dataclass(frozen=True, eq=False)
class Federated:
    """The recommendation after the last block, and how following the advice went.

    Attributes
    ----------
    judged : Judged
    members : bool array (judged blocks, K)
        Who federated.
    groups : tuple of (clients, Scenario)
        Who should federate, and how; the largest group first. Empty if no clients should.
    laws : Groups
        Clients by their laws on all rows.
    counts : frozenset of int
        Numbers of shared parameters in use in the judged blocks.
    """

    judged: Judged
    members: NDArray[np.bool_]
    groups: tuple[GroupSetting, ...]
    laws: Groups
    counts: frozenset[int]


class GroupSearch:
    """Finds groups on a table.

    Parameters
    ----------
    trier : Trier
    targets : sequence of arrays (samples_k,)
    whole : Tried
        The federation of all clients.
    alone : array (stepsizes, blocks, K)
        Errors of each client alone.
    stepsizes : array
        Stepsizes to try in groups.
    """

    def __init__(
        self,
        trier: Trier,
        targets: Sequence[FloatArray],
        whole: Tried,
        alone: FloatArray,
        stepsizes: FloatArray,
    ) -> None:
        self._trier, self._targets, self._whole, self._alone = trier, targets, whole, alone
        self._stepsizes = stepsizes
        self._judge = Judge(trier.blocks)
        self._everybody = tuple(range(trier.scenario.num_clients))

    def run(self) -> Federated:
        """Return what the adviser would have done in each block, and what it recommends."""
        blocks, first = len(self._trier.blocks.counts), self._judge.first
        ends = sorted({first, blocks // 2, 3 * blocks // 4, blocks} - set(range(first)))
        laws = {end: self._laws_before(end) for end in ends}
        partitions = {end: self._without_faulty(groups, end) for end, groups in laws.items()}
        tried = self._try(partitions.values())
        errors, members = [], []
        groups: tuple[GroupSetting, ...] = ()
        counts: set[int] = set()
        for end in range(first, blocks + 1):
            latest = partitions[max(at for at in ends if at <= end)]
            now, is_member, groups = self._decide(latest, tried, end)
            if end < blocks:
                errors.append(now[end])
                members.append(is_member)
                counts.update(setting.num_shared for _, setting in groups)
        judged = Judged(np.array(errors), 0)
        return Federated(judged, np.array(members), groups, laws[blocks], frozenset(counts))

    def _laws_before(self, end: int) -> Groups:
        edges = self._trier.blocks.edges[: end + 1]
        return split_by_law(estimate_laws(self._trier.features, self._targets, edges))

    def _without_faulty(self, laws: Groups, end: int) -> Groups:
        """Return the groups with every client by itself whose errors alone stood out before."""
        past = self._judge.past_errors(self._alone, end)
        scores, times = robust_scores(past[self._judge.best(past)])
        faulty = set(np.flatnonzero(stands_out(scores, times) & (times > 1)).tolist())
        rest = [tuple(k for k in group if k not in faulty) for group in laws]
        return tuple(group for group in (*rest, *((k,) for k in sorted(faulty))) if group)

    def _try(self, partitions: Iterable[Groups]) -> dict[tuple[int, ...], Tried]:
        """Run every group of two or more once, unless the scenario has parts that need more clients."""
        found = {group for groups in partitions for group in groups if len(group) > 1}
        tried = {self._everybody: self._whole}
        jobs = []
        for group in sorted(found - {self._everybody}):
            with suppress(InvalidValueError):
                jobs += [(group, scenario) for scenario in self._settings(group)]
        if jobs:
            errors = self._trier.federations([scenario for _, scenario in jobs], [group for group, _ in jobs])
            for group in {group for group, _ in jobs}:
                at = [i for i, (other, _) in enumerate(jobs) if other == group]
                tried[group] = Tried([jobs[i][1] for i in at], errors[at])
        return tried

    def _settings(self, group: tuple[int, ...]) -> list[Scenario]:
        base = self._trier.of_group(group)
        return [
            base.replace(num_shared=count, stepsize=float(mu))
            for count in self._trier.shared(few=True)
            for mu in self._stepsizes
        ]

    def _decide(
        self, laws: Groups, tried: dict[tuple[int, ...], Tried], end: int
    ) -> tuple[FloatArray, NDArray[np.bool_], tuple[GroupSetting, ...]]:
        """Return errors (blocks, K) of what is best before block `end`, who federates then, and how."""
        judge = self._judge
        past = judge.past_errors(self._alone, end)
        pick = judge.best(past)
        errors, score, groups = self._alone[pick].copy(), past[pick].copy(), []
        for group in laws:
            if group in tried:
                at = list(group)
                together = judge.past_errors(tried[group].errors, end)
                setting = judge.best(together, tried[group].costs)
                gain = judge.past_gain(tried[group].errors[setting], self._alone[pick], group, end)
                # A minority that left the others must show that it gains; others must not be seen to lose.
                is_minority = 4 * len(group) < score.size
                if gain.value > 0 and gain.matters if is_minority else gain.value > 0 or not gain.matters:
                    errors[:, at], score[at] = tried[group].errors[setting][:, at], together[setting][at]
                    groups.append((group, tried[group].scenarios[setting]))
        whole = judge.past_errors(self._whole.errors, end)
        setting = judge.best(whole, self._whole.costs)
        if whole[setting].sum() <= score.sum() or len(laws) == 1:
            everybody = ((self._everybody, self._whole.scenarios[setting]),)
            return self._whole.errors[setting], np.ones(score.size, bool), everybody
        is_member = np.zeros(score.size, bool)
        for group, _ in groups:
            is_member[list(group)] = True
        return errors, is_member, tuple(groups)
