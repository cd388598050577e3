"""The server's arithmetic: eq. (5) of the paper on flat vectors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Aggregation, PreAggregation
from psofed.parts.plain import combine_uploads, mix_uploads

Vector = NDArray[Any]

# From this many entries, or numbers in its memory, on a rule is worth compiling, which takes a second or two once.
_LARGE, _LARGE_MEMORY = 500, 20_000


def check_rule(rule: Aggregation, pre: PreAggregation | None) -> None:
    """Refuse a rule that a federation cannot use."""
    if rule.has_root_data:
        raise NotCoveredError(
            f'aggregation = "{rule.kind}" needs root data on the server; a federation has none'
        )
    rule.check_mixing(pre)


def aggregate(
    model: Vector,
    uploads: Sequence[tuple[NDArray[np.int64], Vector]],
    weights: Sequence[float] | None = None,
    rule: Aggregation | None = None,
    pre: PreAggregation | None = None,
    uniforms: Vector | None = None,
    memory: Vector | None = None,
    clients: NDArray[np.int64] | None = None,
    num_clients: int | None = None,
) -> Vector:
    """Return w_{n+1}: by default the average over participants of (uploaded entry, or w_n's where not shared).

    w_{n+1} = Σ_k a_k [S_{k,n+1} u_k + (I − S_{k,n+1}) w_n] / Σ_k a_k, with a_k = 1 but for `weights`.

    Parameters
    ----------
    model : array (D,)
        w_n.
    uploads : sequence of (indices, values)
        For every valid participant the positions S_{k,n+1} and its entries there, both of shape (M,).
    weights : sequence of float, optional
        a_k, at least one of them positive; only with the average.
    rule : Aggregation, optional
        Another rule, applied to the entries that each participant shared.
    pre : PreAggregation, optional
        What is done with the uploads before that.
    uniforms : array (participants,), optional
        The random numbers in [0, 1) that it needs, one for each participant.
    memory, clients, num_clients : optional
        For a rule with memory: as in :func:`psofed.parts.plain.combine_uploads`.

    Returns
    -------
    array (D,)
        A new vector of the type of `model`; a copy of it if there are no uploads. Sums are in float64.

    Examples
    --------
    >>> uploads = [(np.array([0]), np.array([4.0])), (np.array([1]), np.array([20.0]))]
    >>> aggregate(np.array([0.0, 10.0]), uploads)
    array([ 2., 15.])
    """
    if not uploads:
        return model.copy()
    result = model.astype(np.float64)
    if pre is not None or (rule is not None and not isinstance(rule, Mean)):
        joined = _combine(result, uploads, rule or Mean(), pre, uniforms, memory, clients, num_clients)
        return np.asarray(joined.astype(model.dtype, copy=False))
    shares = np.ones(len(uploads)) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum()
    first = uploads[0][0]
    if all(indices is first for indices, _ in uploads):  # one mask for all: the others' entries need no sums
        before, change = result[first], np.zeros(len(first))
        for (_, values), share in zip(uploads, shares, strict=True):
            change += share * (values - before)
        result[first] = before + change
    else:
        change = np.zeros_like(result)
        for (indices, values), share in zip(uploads, shares, strict=True):
            change[indices] += share * (values - result[indices])
        result += change
    return result.astype(model.dtype, copy=False)


def _combine(
    model: Vector,
    uploads: Sequence[tuple[NDArray[np.int64], Vector]],
    rule: Aggregation,
    pre: PreAggregation | None,
    uniforms: Vector | None,
    memory: Vector | None,
    clients: NDArray[np.int64] | None,
    num_clients: int | None,
) -> Vector:
    # A memory is of all entries.
    shared = [indices for indices, _ in uploads] if memory is None else [np.arange(model.size)]
    entries = np.unique(np.concatenate(shared))
    sent = np.full((len(uploads), len(entries)), np.nan)
    for row, (indices, values) in zip(sent, uploads, strict=True):
        row[np.searchsorted(entries, indices)] = values
    if pre is not None:
        sent = mix_uploads(
            pre, sent, model[entries], uniforms=np.zeros(len(sent)) if uniforms is None else uniforms
        )
    rule.check_participants(len(sent))
    combine: Callable[..., Vector] = combine_uploads
    if len(entries) >= _LARGE or (memory is not None and memory.size >= _LARGE_MEMORY):
        from psofed.engine.server import combine_compiled as combine
    following = model.copy()
    following[entries] = combine(
        rule, sent, model[entries], memory=memory, clients=clients, num_clients=num_clients
    )
    return following


def overwrite(model: Vector, indices: NDArray[np.int64], values: Vector) -> Vector:
    """Return a copy of a client's model with the server's values at `indices`: (I − S_{k,n}) w_k + S_{k,n} w.

    Examples
    --------
    >>> overwrite(np.zeros(3), np.array([1]), np.array([5.0]))
    array([0., 5., 0.])
    """
    result = model.copy()
    result[indices] = values
    return result
