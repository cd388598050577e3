"""A guard against crude lies: a reply far beyond the model and the other replies does not count.

It is on by default and is not a defence against clever attackers, for whom there are the robust aggregation rules. It
keeps one client from taking over the average in one stroke, as 10³⁰⁰ would.

For reply k with uploaded entries u on S, its deviation is d_k = ‖u − w_S‖ / √M, with w the server's model. It is
compared with

    c_k = factor · max(o_k, h, s)

with o_k the median deviation of the round's *other* replies, h the median of the last accepted deviations, and s the
median of the model's root mean square over the last rounds. Medians move only if many agree: one Byzantine client in
three moves neither o nor h, and needs 25 rounds to move s once.

- d_k > c_k: *doubtful*. The reply is left out, without blame. Honest replies can be that far off: the change of one
  entry after one sample is a product of two random numbers, and exceeds ten times its median in a few of a thousand
  replies. While fewer than 20 replies have been accepted, honest deviations differ more still. Then the bound is
  10 · factor · max(largest o, largest h, s), and there must be two others.
- d_k > 100 · c_k, and there are two others: *implausible*. The reply is left out and counts as a strike. Of two that
  disagree nobody can say which one is Byzantine: a client that hardly moves could make the other look implausible.

A bound on each step alone lets a patient node move the model a little further in every round, and the bound grows with
the model. So what a node does over a window is bounded, too. Its *path* is the sum of its accepted deviations, each
times M/D, over about the last 50 rounds (older ones are forgotten exponentially). A reply is doubtful if with it

    path_k > max(drift · √max(1, 25/c) · median path of the round's other nodes, 2 · s)

(of all other nodes if fewer than two others have answered; two nodes alone are not compared). Here c is the median
number of replies in those nodes' paths, counted with the same forgetting. Honest nodes' steps vary by more than their
mean (one sample, one entry: a product of two normal variables), so paths of few replies differ by chance alone. The
factor is 1 once c reaches half a window, and a node cannot influence its own bound.

A newcomer that starts from zero has a path of about s until its model has caught up. A node that learns `drift` times
as fast as the others is left out of some rounds, so that its path stays within the bound. This limits what one node can
do to a mean; only a robust rule makes it small (docs/federation.md has the table).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.federation.protocol.layout import Vector

_DEVIATIONS, _SIZES = 200, 50
_FEW, _EARLY, _BLAME = 20, 10.0, 100.0
_SHORT = 1024  # values of an upload, up to which all are compared at once
_ENOUGH = 3  # replies, of which two can outvote one
_WINDOW, _OWN_SIZES = 50, 2.0
_KEPT = 1.0 - 1.0 / _WINDOW  # of a path, after a round
_COMPARABLE = 25.0  # replies in a path, from which on paths are compared without allowance for chance

Upload = tuple[NDArray[np.int64], Vector]
"""The entries S_{k,n+1} that a node has shared, ascending, and its values there; both of shape (M,)."""


class Plausibility:
    """History of the replies, and whether new ones are plausible.

    Parameters
    ----------
    factor : float or None
        Bound on a single step; None lets everything pass that can be computed with.
    drift : float or None
        Bound on a node's path; None for no bound.
    state : mapping, optional
        From :meth:`to_mapping`.

    Examples
    --------
    >>> guard = Plausibility(factor=10.0)
    >>> shared = np.array([0, 1])
    >>> honest, lie = np.array([0.1, 0.2]), np.array([1e300, 0.0])
    >>> guard.judge(np.zeros(2), {"a": (shared, honest), "b": (shared, honest), "c": (shared, lie)})
    {'c': ('implausible', 'inf away from the model, of at most 158')}
    """

    def __init__(
        self, factor: float | None, drift: float | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        self.factor = factor
        self.drift = drift
        self._deviations: list[float] = list((state or {}).get("deviations", []))
        self._sizes: list[float] = list((state or {}).get("sizes", []))
        self._paths: dict[str, float] = dict((state or {}).get("paths", {}))
        self._counts: dict[str, float] = dict((state or {}).get("counts", {}))
        self._judged: dict[str, tuple[Vector, Upload, float]] = {}  # in the current round

    def judge(self, model: Vector, uploads: Mapping[str, Upload]) -> dict[str, tuple[str, str]]:
        """Return for each upload that must not count, by node, the kind of bad reply and why."""
        deviations = dict(zip(uploads, _deviations(model, [*uploads.values()]), strict=True))
        self._judged = {node: (model, upload, deviations[node]) for node, upload in uploads.items()}
        early = len(self._deviations) < _FEW
        refused: dict[str, tuple[str, str]] = {}
        limits = self._limits(np.array([*deviations.values()]))
        for (node, deviation), limit in zip(deviations.items(), limits, strict=True):
            if not math.isfinite(deviation) or deviation > limit:
                blamed = len(deviations) >= _ENOUGH and (early or deviation > _BLAME * limit)
                kind = "implausible" if blamed or not math.isfinite(deviation) else "doubtful"
                refused[node] = kind, f"{deviation:.3g} away from the model, of at most {limit:.3g}"
        left = {node: deviation for node, deviation in deviations.items() if node not in refused}
        size = _median(self._sizes) if self._sizes else 0.0
        if not early:
            return refused | self._too_far_in_all(model, uploads, left, size)
        if self.factor is None or len(left) < _ENOUGH:
            return refused
        for node, deviation in left.items():
            most = max([*_others(left, node), *self._deviations, size])
            if 0.0 < _EARLY * self.factor * most < deviation:
                refused[node] = (
                    "doubtful",
                    f"{deviation:.3g} away from the model, all others at most {most:.3g}",
                )
        return refused

    def note(self, model: Vector, uploads: Mapping[str, Upload]) -> None:
        """Remember the accepted uploads of a round that began with `model`."""
        self._deviations += [self._deviation(model, *pair) for pair in uploads.items()]
        self._deviations = self._deviations[-_DEVIATIONS:]
        self._sizes = [*self._sizes, _size(model)][-_SIZES:]
        self._paths = self._paths_with(model, uploads)
        largest = max(self._paths.values(), default=0.0)
        self._paths = {node: path for node, path in self._paths.items() if path > 1e-6 * largest}
        counts = {node: self._counts.get(node, 0.0) * _KEPT + (node in uploads) for node in self._paths}
        self._counts = counts
        self._judged = {}

    def to_mapping(self) -> dict[str, Any]:
        """Return plain lists, as JSON holds them."""
        return {
            "deviations": list(self._deviations),
            "sizes": list(self._sizes),
            "paths": dict(sorted(self._paths.items())),
            "counts": dict(sorted(self._counts.items())),
        }

    def limit(self, model: Vector, uploads: Mapping[str, Upload], node: str) -> float:
        """Return how far the reply of `node` may lie from `model`, given the others' of `uploads`."""
        others = _deviations(model, [upload for name, upload in uploads.items() if name != node])
        return self._limits(np.array([*others, 0.0]))[-1]

    def _too_far_in_all(
        self, model: Vector, uploads: Mapping[str, Upload], left: Collection[str], size: float
    ) -> dict[str, tuple[str, str]]:
        """Return those of the nodes `left` whose path would become too long, and why."""
        if self.drift is None:
            return {}
        paths = self._paths_with(model, {node: uploads[node] for node in left})
        compared = list(left) if len(left) >= _ENOUGH else list(paths)
        if len(compared) < _ENOUGH:
            return {}  # of two that disagree nobody can say which one is Byzantine
        farthest = dict(zip(compared, self._farthest(compared, paths), strict=True))
        refused = {}
        for node in left:
            limit = max(farthest[node], _OWN_SIZES * size)
            if 0.0 < limit < paths[node]:
                refused[node] = (
                    "doubtful",
                    f"moved {paths[node]:.3g} away from the model in the last rounds, of at most {limit:.3g}",
                )
        return refused

    def _farthest(self, nodes: Sequence[str], paths: Mapping[str, float]) -> list[float]:
        """Return for each of `nodes` how long its path may be, given those of the others."""
        assert self.drift is not None
        counts = medians_of_others(np.array([self._counts.get(node, 0.0) + 1.0 for node in nodes]))
        lengths = medians_of_others(np.array([paths[node] for node in nodes]))
        allowances = np.sqrt(np.maximum(1.0, _COMPARABLE / counts))
        return [float(length) for length in self.drift * allowances * lengths]

    def _paths_with(self, model: Vector, uploads: Mapping[str, Upload]) -> dict[str, float]:
        """Return all nodes' paths after a round in which `uploads` are accepted."""
        paths = {node: path * _KEPT for node, path in self._paths.items()}
        for node, upload in uploads.items():
            step = self._deviation(model, node, upload) * len(upload[0]) / max(1, len(model))
            paths[node] = paths.get(node, 0.0) + step
        return paths

    def _deviation(self, model: Vector, node: str, upload: Upload) -> float:
        """Return how far an upload lies from `model`; what was judged before is not computed again."""
        before, same, deviation = self._judged.get(node, (None, None, 0.0))
        return deviation if before is model and same is upload else _deviations(model, [upload])[0]

    def _limits(self, deviations: FloatArray) -> list[float]:
        """Return for each reply of a round how far it may lie from the model, given the others."""
        others = medians_of_others(deviations)
        known = [_median(values) for values in (self._deviations, self._sizes) if values]
        widened = _BLAME if len(self._deviations) < _FEW else 1.0
        limits = []
        for median in others.tolist():
            scale = max([median, *known])
            nothing = self.factor is None or scale == 0.0  # to compare with
            limits.append(math.inf if nothing or self.factor is None else scale * self.factor * widened)
        return limits


def medians_of_others(values: FloatArray) -> FloatArray:
    """Return for each of `values` the median of all others, 0 if there are none.

    Examples
    --------
    >>> medians_of_others(np.array([5.0, 1.0, 2.0, 9.0]))
    array([2., 5., 5., 2.])
    """
    if values.size < 2:
        return np.zeros(values.size)
    order = np.argsort(values, kind="stable")
    ascending, ranks = values[order], np.empty(values.size, np.int64)
    ranks[order] = np.arange(values.size)
    low, high = (values.size - 2) // 2, (values.size - 1) // 2  # of the others, which are one fewer
    below, above = ascending[low + (low >= ranks)], ascending[high + (high >= ranks)]
    return np.asarray(below if low == high else (below + above) / 2.0, np.float64)


def _median(values: Sequence[float]) -> float:
    """Return the median of some finite numbers, in a tenth of the time that NumPy takes for a list."""
    ascending, half = sorted(values), len(values) // 2
    return ascending[half] if len(values) % 2 else (ascending[half - 1] + ascending[half]) / 2.0


def _others(deviations: Mapping[str, float], node: str) -> list[float]:
    return [value for other, value in deviations.items() if other != node]


def _deviations(model: Vector, uploads: Sequence[Upload]) -> list[float]:
    """Return the root mean square of each upload against what the server has; infinite if it overflows.

    Short uploads are compared as the rows of one matrix.
    """
    lengths = {len(indices) for indices, _ in uploads}
    with np.errstate(over="ignore", invalid="ignore"):
        if len(uploads) > 1 and len(lengths) == 1 and 0 < max(lengths) <= _SHORT:
            shape = len(uploads), max(lengths)
            entries = np.concatenate([indices for indices, _ in uploads]).reshape(shape)
            values = np.concatenate([values for _, values in uploads]).reshape(shape)
            return list(map(float, _root_mean_squares(model[entries], values)))
        found, shared, before = list[float](), None, model
        for indices, values in uploads:
            if indices is not shared:  # nodes often share one mask
                shared, before = indices, model[indices]
            found.append(float(_root_mean_squares(before, values)))
        return found


def _root_mean_squares(before: Vector, after: Vector) -> FloatArray:
    """Return the root mean square of the change, over the last axis."""
    change = np.subtract(after, before, dtype=np.float64)
    squares = np.square(change, out=change)
    return np.asarray(np.sqrt(squares.mean(axis=-1)) if change.shape[-1] else np.zeros(change.shape[:-1]))


def _size(model: Vector) -> float:
    with np.errstate(over="ignore"):
        size = math.sqrt(np.mean(np.square(model, dtype=np.float64)))
    return size if math.isfinite(size) else 0.0
