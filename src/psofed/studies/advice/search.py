"""Who should federate with whom: groups chosen from the past only, and judged by what follows.

After each quarter of the time the clients are grouped by their laws on the rows so far
(:mod:`psofed.studies.advice.groups`). From then on the adviser can federate everybody, or the groups that everybody
was split into. Of these, a group that was split further is federated as a whole unless its parts were seen to do
better. A group of one, a group that was seen to lose and a minority that was not seen to gain stay alone. In every
block the adviser does what had the smaller error in the blocks before. Its errors are those of following the advice at
the time, so an interval of these errors has paid for the search.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.scenario import Scenario
from psofed.studies.advice.errors import Trier
from psofed.studies.advice.groups import Clients, LawTree, estimate_laws, split_by_law
from psofed.studies.advice.judging import Judged

GroupSetting = tuple[Clients, Scenario]


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
    counts : frozenset of int
        Numbers of shared parameters in use in the judged blocks.
    """

    judged: Judged
    members: NDArray[np.bool_]
    groups: tuple[GroupSetting, ...]
    counts: frozenset[int]


@dataclass(frozen=True, eq=False)
class _Plan:
    """A plan of some clients from a block on: errors (blocks, K), past errors (K,), zero for all others."""

    errors: FloatArray
    past: FloatArray
    groups: tuple[GroupSetting, ...]


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
        self._judge = trier.judge
        self._everybody = tuple(range(trier.scenario.num_clients))

    def run(self) -> Federated:
        """Return what the adviser would have done in each block, and what it recommends."""
        blocks, first = len(self._trier.blocks.counts), self._judge.first
        ends = sorted({first, blocks // 2, 3 * blocks // 4, blocks} - set(range(first)))
        trees = {end: self._laws_before(end) for end in ends}
        tried = self._try(trees.values())
        errors, members = [], []
        groups: tuple[GroupSetting, ...] = ()
        counts: set[int] = set()
        for end in range(first, blocks + 1):
            latest = trees[max(at for at in ends if at <= end)]
            now, is_member, groups = self._decide(latest, tried, end)
            if end < blocks:
                errors.append(now[end])
                members.append(is_member)
                counts.update(setting.num_shared for _, setting in groups)
        return Federated(Judged(np.array(errors), 0), np.array(members), groups, frozenset(counts))

    def _laws_before(self, end: int) -> LawTree:
        edges = self._trier.blocks.edges[: end + 1]
        return split_by_law(estimate_laws(self._trier.features, self._targets, edges))

    def _try(self, trees: Iterable[LawTree]) -> dict[Clients, Tried]:
        """Run every group of two or more once, unless the scenario has parts that need more clients."""
        found = {node.clients for tree in trees for node in tree.nodes if len(node.clients) > 1}
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
        self, laws: LawTree, tried: dict[Clients, Tried], end: int
    ) -> tuple[FloatArray, NDArray[np.bool_], tuple[GroupSetting, ...]]:
        """Return errors (blocks, K) of what is best before block `end`, who federates then, and how."""
        whole, past = self._best_setting(self._whole, end)
        if laws.parts:
            apart = self._apart(laws, tried, end)
            if apart.past.sum() < past.sum():
                groups = sorted(apart.groups, key=lambda group: (-len(group[0]), group[0]))
                members = [k for group, _ in groups for k in group]
                return apart.errors, np.isin(self._everybody, members), tuple(groups)
        everybody = ((self._everybody, self._whole.scenarios[whole]),)
        return self._whole.errors[whole], np.ones(past.size, bool), everybody

    def _plan(self, node: LawTree, tried: dict[Clients, Tried], end: int) -> _Plan:
        """Return what is best for a group: to federate, to stay alone, or that its parts go their own ways."""
        together = self._together(node.clients, tried, end)
        if not node.parts:
            return together
        apart = self._apart(node, tried, end)
        gain = self._judge.past_gain(apart.errors, together.errors, node.clients, end)
        return apart if gain.value > 0 and gain.matters else together

    def _together(self, group: Clients, tried: dict[Clients, Tried], end: int) -> _Plan:
        """Return the plan of one group without its parts: a federation, or each alone."""
        judge, is_member = self._judge, np.isin(self._everybody, group)
        past = judge.past_errors(self._alone, end)
        pick = judge.best(past)
        alone = _Plan(np.where(is_member, self._alone[pick], 0.0), np.where(is_member, past[pick], 0.0), ())
        if group not in tried:
            return alone
        setting, past_together = self._best_setting(tried[group], end)
        gain = judge.past_gain(tried[group].errors[setting], self._alone[pick], group, end)
        # A minority that left the others must show that it gains; others must not be seen to lose.
        is_minority = 4 * len(group) < len(self._everybody)
        if not (gain.value > 0 and gain.matters if is_minority else gain.value > 0 or not gain.matters):
            return alone
        return _Plan(tried[group].errors[setting], past_together, ((group, tried[group].scenarios[setting]),))

    def _best_setting(self, tried: Tried, end: int) -> tuple[int, FloatArray]:
        past = self._judge.past_errors(tried.errors, end)
        setting = self._judge.best(past, tried.costs)
        return setting, past[setting]

    def _apart(self, node: LawTree, tried: dict[Clients, Tried], end: int) -> _Plan:
        """Return the plan in which the parts of a group go their own ways."""
        plans = [self._plan(part, tried, end) for part in node.parts]
        return _Plan(
            np.sum([plan.errors for plan in plans], axis=0),
            np.sum([plan.past for plan in plans], axis=0),
            tuple(group for plan in plans for group in plan.groups),
        )
