"""Who should federate with whom: groups of clients with one law, chosen from the past and judged by what follows.

Client k's law is its weights w_k, estimated from its past rows and drawn towards those of all clients together, w̄:

    w_k = w̄ + (S_k + D R̄)⁻¹ (p_k − S_k w̄),        S_k = Σ x xᵀ,   p_k = Σ x y,   R̄ = mean of S_k/n_k.

In the coordinates z_k = R̄^{1/2} (w_k − w̄) a squared distance is the error that one client's law adds to the other's
forecasts, and each coordinate is uncertain by v_k = σ_k²/n_k, times a factor for noise that is correlated in time.

A group of m clients is split in two by Ward's method. The split stands, with s clients in the smaller half, if

    (π_a π_b/(π_a + π_b)) ‖z_a − z_b‖² > D + 2 √(D t) + 2 t,    t = log C(m, s) + log(m/0.01),

with z_a, z_b the halves' means weighted by 1/v_k and π_a, π_b the sums of these weights. The left side is χ²_D for two
halves that follow one law and were not chosen by the data; the right side bounds the largest of all C(m, s) such
choices (Laurent and Massart 2000, and a union bound). Halves are split again.

After each quarter of the judged time clients are grouped again, and in every block the adviser does what had the
smaller error before: it federates everybody, or the groups of a partition, a finer one only if that was clearly better.
A group that was seen to lose, and a minority that was not seen to gain, stay alone. Its errors are those of following
the advice at the time, so an interval of these errors has paid for the search.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.studies.advice.judging import Clients, Way
from psofed.studies.advice.ways import Runner

_FALSE_SPLITS = 0.01
_SEARCHES = 4  # how often clients are grouped again


@dataclass(frozen=True, eq=False)
class Laws:
    """Laws of all clients as points z_k (K, D) whose squared distances are errors, and variances v_k (K,)."""

    points: FloatArray
    variances: FloatArray


def estimate_laws(inputs: Sequence[FloatArray], targets: Sequence[FloatArray], edges: NDArray[np.int64]) -> Laws:
    """Estimate every client's law from its rows before the last of `edges`, which cut time into blocks.

    Every client has a row in the first of them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = [rng.standard_normal((60, 2)) for _ in range(8)]
    >>> y = [(2 * (k % 2) - 1) * rows[:, 0] + rng.standard_normal(60) for k, rows in enumerate(x)]
    >>> split_by_law(estimate_laws(x, y, np.arange(0, 61, 10)))[-1]
    [(0, 2, 4, 6), (1, 3, 5, 7)]
    """
    dimension, end = inputs[0].shape[1], int(edges[-1])
    past = [(x[:end], y[:end]) for x, y in zip(inputs, targets, strict=True)]
    rows = np.array([len(y) for _, y in past], np.float64)
    squares = np.array([x.T @ x for x, _ in past])
    products = np.array([y @ x for x, y in past])
    covariance = (squares / rows[:, None, None]).mean(axis=0) + 1e-9 * np.eye(dimension)
    common = np.linalg.solve(squares.sum(axis=0) + 1e-6 * covariance, products.sum(axis=0))
    drawn = squares + dimension * covariance
    weights = common + np.linalg.solve(drawn, (products - squares @ common)[..., None])[..., 0]
    degrees = np.trace(np.linalg.solve(drawn, squares), axis1=1, axis2=2)
    residuals = [y - x @ w for (x, y), w in zip(past, weights, strict=True)]
    noise = np.array([e @ e for e in residuals]) / np.maximum(rows - degrees, 1.0)
    scores = [x * e[:, None] for (x, _), e in zip(past, residuals, strict=True)]
    variances = noise / rows * _inflation(scores, edges)
    return Laws((weights - common) @ np.linalg.cholesky(covariance), np.maximum(variances, 1e-12))


def split_by_law(laws: Laws) -> list[list[Clients]]:
    """Return partitions of all clients into groups of one law: from a single group on, each splits the one before."""
    partitions: list[list[Clients]] = [[tuple(range(len(laws.points)))]]
    while True:
        finer = [part for group in partitions[-1] for part in _split(laws, group)]
        if len(finer) == len(partitions[-1]):
            return partitions
        partitions.append(sorted(finer, key=lambda group: (-len(group), group)))


def follow_advice(runner: Runner, whole: Way, alone: Way) -> Way:
    """Group clients and follow the advice through the judged blocks; return what came of it, and whom it groups last.

    `whole` is the federation of all clients. It is also the answer if no group is worth a sentence.
    """
    judge, targets, ends = runner.judge, runner.data.targets, (runner.judge.first, runner.judge.blocks)
    together, own = judge.follow(whole), judge.follow(alone)
    searches = sorted({*np.linspace(*ends, _SEARCHES + 1).astype(int).tolist()})
    levels = {end: split_by_law(estimate_laws(runner.features, targets, judge.edges[: end + 1])) for end in searches}
    grid = np.unique([scenario.common_stepsize for scenario in whole.scenarios])
    used = [own.stepsizes[0], together.scenarios[0].common_stepsize]
    grid = grid[(grid > min(used) / 2) & (grid < max(used) * 2)]
    tried = {runner.everybody: whole}
    for group in sorted({group for partitions in levels.values() for part in partitions for group in part}):
        if len(group) > 1 and group not in tried:
            with suppress(InvalidValueError):  # the scenario may have parts that need more clients
                tried[group] = runner.federation(group, runner.shared(few=True), grid)
    followed, counts, plan = np.zeros_like(own.errors), set[int](), whole
    for end in range(ends[0], ends[1] + 1):
        plan = _decide(runner, levels[max(at for at in searches if at <= end)], tried, alone, end)
        if end < ends[1]:
            followed[0, end] = plan.errors[0, end]
            counts.update(plan.costs if plan.groups else ())
    members = runner.mask([k for group in plan.groups for k in group])
    plan = replace(plan, errors=followed, shared_counts=frozenset(counts))
    gain = judge.among(members).gain(plan, own)
    is_worth_it = not math.isnan(gain.value) and (2 * members.sum() >= members.size or gain.helps)
    return plan if is_worth_it else together


def _decide(runner: Runner, partitions: list[list[Clients]], tried: dict[Clients, Way], alone: Way, end: int) -> Way:
    """Return the federation of everybody, unless groups did better before block `end`; finer ones must be clearly."""
    judge, past = runner.judge, slice(runner.judge.first, end)
    own, best = alone.at([judge.best(alone, end)]), tried[runner.everybody]
    best = best.at([judge.best(best, end)])
    for depth, partition in enumerate(partitions[1:]):
        plan = replace(best, errors=own.errors.copy(), scenarios=(), groups=())
        for group in partition:
            if group not in tried:
                continue
            members, way = runner.mask(group), tried[group].at([judge.best(tried[group], end)])
            gain = judge.gain(way, replace(own, errors=np.where(members, own.errors, 0.0)), blocks=past)
            is_minority = 4 * len(group) < members.size
            if gain.helps if is_minority else gain.value > 0 or not gain.matters:
                plan.errors[..., members] = way.errors[..., members]
                plan = replace(plan, scenarios=(*plan.scenarios, *way.scenarios), groups=(*plan.groups, group))
        sums = [judge.past_errors(way.errors, end).sum() for way in (plan, best)]
        if sums[0] < sums[1] and (depth == 0 or judge.gain(plan, best, blocks=past).helps):
            best = plan
    return best


def _split(laws: Laws, group: Clients) -> tuple[Clients, ...]:
    """Return the halves of a group, or the group if one law may hold for all."""
    from scipy.cluster.hierarchy import fcluster, linkage

    points, weights = laws.points[list(group)], 1.0 / laws.variances[list(group)]
    count, dimension = points.shape
    if count < 2:
        return (group,)
    half = fcluster(linkage(points, "ward"), 2, "maxclust") == 1
    if half.all():  # the points are the same
        return (group,)
    first, second = weights[half].sum(), weights[~half].sum()
    gap = weights[half] @ points[half] / first - weights[~half] @ points[~half] / second
    smaller = int(min(half.sum(), count - half.sum()))
    choices = math.lgamma(count + 1) - math.lgamma(smaller + 1) - math.lgamma(count - smaller + 1)
    t = choices + math.log(count / _FALSE_SPLITS)
    bound = dimension + 2 * math.sqrt(dimension * t) + 2 * t
    if first * second / (first + second) * float(gap @ gap) <= bound:
        return (group,)
    return tuple(tuple(np.array(group)[side].tolist()) for side in (half, ~half))


def _inflation(scores: Sequence[FloatArray], edges: NDArray[np.int64]) -> float:
    """Return by what factor correlation in time makes laws less certain: sums of x e within blocks against rows."""
    in_blocks = by_row = 0.0
    blocks = len(edges) - 1
    for score in scores:
        starts = edges[:-1][edges[:-1] < len(score)]
        in_blocks += float((np.add.reduceat(score, starts, axis=0) ** 2).sum())
        by_row += float((score**2).sum())
    if blocks < 2 or not by_row:
        return 1.0
    return max(1.0, in_blocks / by_row * blocks / (blocks - 1))
