"""The server's arithmetic: eq. (5) of the paper on flat vectors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Aggregation, Defence, PreAggregation
from psofed.parts.plain import combine_uploads, mix_uploads

Vector = NDArray[Any]
Upload = tuple[NDArray[np.int64], Vector]
"""The entries S_{k,n+1} that a client has shared, ascending, and its values there; both of shape (M,)."""

# From this many entries, or numbers in its memory, on a rule is worth compiling, which takes a second or two once.
_LARGE, _LARGE_MEMORY = 500, 20_000


def check_rule(rule: Aggregation, pre: PreAggregation | None) -> None:
    """Refuse a rule that a federation cannot use."""
    if rule.has_root_data:
        raise NotCoveredError(f'aggregation = "{rule.kind}" needs root data on the server; a federation has none')
    rule.check_mixing(pre)


def check_defence(defence: Defence) -> None:
    """Refuse a defence that a federation cannot use."""
    if not defence.excluded_download:
        raise NotCoveredError("defence.excluded_download = false: in a federation every participant is sent its share")
    if defence.variance not in ("auto", "past"):
        raise NotCoveredError(
            f'defence.variance = "{defence.variance}": nodes come and go, so a federation compares each with its past'
        )


def as_rows(uploads: Sequence[Upload], size: int | None = None) -> tuple[NDArray[np.int64], Vector]:
    """Return the entries that anybody has shared (or all of `size`), and a row of them for each upload, NaN elsewhere.

    Examples
    --------
    >>> as_rows([(np.array([0, 2]), np.array([4.0, 5.0])), (np.array([2]), np.array([6.0]))])
    (array([0, 2]), array([[ 4.,  5.],
           [nan,  6.]]))
    """
    entries = np.unique(np.concatenate([indices for indices, _ in uploads])) if size is None else np.arange(size)
    rows = np.full((len(uploads), len(entries)), np.nan)
    for row, (indices, values) in zip(rows, uploads, strict=True):
        row[np.searchsorted(entries, indices)] = values
    return entries, rows


def aggregate(
    model: Vector,
    uploads: Sequence[Upload],
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
    if pre is None and (rule is None or isinstance(rule, Mean)):
        shares = np.ones(len(uploads)) if weights is None else np.asarray(weights, dtype=np.float64)
        change = np.zeros_like(result)
        for (indices, values), share in zip(uploads, shares / shares.sum(), strict=True):
            change[indices] += share * (values - result[indices])
        return (result + change).astype(model.dtype, copy=False)
    entries, sent = as_rows(uploads, None if memory is None else model.size)  # a memory is of all entries
    server = result[entries]
    if pre is not None:
        sent = mix_uploads(pre, sent, server, uniforms=np.zeros(len(sent)) if uniforms is None else uniforms)
    rule = rule or Mean()
    rule.check_participants(len(sent))
    combine: Callable[..., Vector] = combine_uploads
    if len(entries) >= _LARGE or (memory is not None and memory.size >= _LARGE_MEMORY):
        from psofed.engine.server import combine_compiled as combine
    result[entries] = combine(rule, sent, server, memory=memory, clients=clients, num_clients=num_clients)
    return result.astype(model.dtype, copy=False)


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
