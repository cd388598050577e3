"""Defences: judge uploads as :mod:`psofed.parts.watching` says, and drop what excluded clients sent."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from psofed.common.types import FloatArray, IntArray
from psofed.engine.hooks import Body, options_of, teach
from psofed.engine.tables import Stage
from psofed.engine.uploads import Uploads, Work, entry_at, gather, release
from psofed.parts.contexts import Evidence
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import middle, part_of
from psofed.parts.watching import (
    LARGEST_SCORE,
    Watching,
    WatchPlan,
    find_deviations,
    learn_variances,
    make_watching,
    take_note,
)

if TYPE_CHECKING:
    from psofed.engine.state import Setup

_NOT_WATCHED = WatchPlan(0.0, np.zeros((0, 0)))


class DefenceSide(NamedTuple):
    """The defence.

    Attributes
    ----------
    address : int array (1,)
        Of its method; 0 without a defence.
    options : array (any,)
        Its options.
    excludes_downloads : bool
        Whether excluded clients do not download either.
    server : array (L, any)
        The server's errors.
    uploads : Uploads
        What arrives; what excluded clients sent becomes NaN.
    watching : Watching
        Its memory.
    work : Work
        Scratch.
    """

    address: IntArray
    options: FloatArray
    excludes_downloads: bool
    server: FloatArray
    uploads: Uploads
    watching: Watching
    work: Work


def make_defence_side(setup: "Setup", plan: WatchPlan | None) -> DefenceSide:
    """Return the defence of a block of trials, with what it needs to know before a run."""
    defence, clients = setup.scenario.defence, setup.scenario.num_clients
    assert (plan is None) == (defence is None), "a defence needs its plan"
    side = DefenceSide(
        address=np.zeros(1, np.int64),
        options=np.zeros(0) if defence is None else options_of(defence),
        excludes_downloads=defence is not None and not defence.excluded_download,
        server=setup.state.known,
        uploads=setup.uploads,
        watching=make_watching(defence, plan or _NOT_WATCHED, clients, len(setup.trials) if plan else 0),
        work=setup.work,
    )
    if defence is not None:
        functions: Any = (find_deviations, take_note, learn_variances)
        for function in functions:
            teach(function)
        side.address[0] = setup.hooks.add(defence, "suspicion", _make_frame, side)
    return side


def _make_frame(unpack: Body, body: Body) -> Stage:
    def frame(n: int, k: int, g: int, defence: DefenceSide) -> None:
        self, uploads, watch = unpack(defence.options), defence.uploads, defence.watching
        sent, left = uploads.sent, watch.left
        scores = np.empty(sent.shape[2])
        for trial in range(sent.shape[0]):
            clients = uploads.clients[trial, : uploads.rows[trial]]
            residuals = _find_residuals(trial, defence)
            squares, deviations = find_deviations(n, trial, clients, residuals, watch)
            for p in range(clients.size):
                if squares[p] == squares[p]:
                    client: Any = np.int64(clients[p])
                    count = 0
                    for residual in residuals[p]:
                        if residual == residual:
                            score = residual / deviations[p]
                            scores[count] = min(max(score, -LARGEST_SCORE), LARGEST_SCORE)
                            count += 1
                    evidence = Evidence(part_of(scores, 0, (count,)), client, n)
                    suspicion = body(self, evidence, watch.memory[trial, client])
                    take_note(suspicion, n, trial, client, watch)
            learn_variances(trial, clients, squares, watch)
            # After all notes: several delayed uploads of a client may arrive together.
            for p in range(clients.size):
                if left[trial, clients[p]] != 0:
                    sent[trial, p] = math.nan

    return frame


@register_jitable
def _find_residuals(trial: int, defence: DefenceSide) -> FloatArray:
    """Return uploads less the server's values, or the median of that and the others', (P, M); NaN if not sent."""
    uploads, watch, work, server = defence.uploads, defence.watching, defence.work, defence.server[trial]
    sent, included, count = uploads.sent, work.counts, 0
    participants, shared = uploads.rows[trial], sent.shape[2]
    residuals, others = np.full((participants, shared), math.nan), np.empty(participants + 1)
    for p in range(participants):
        if not watch.by_server and watch.left[trial, uploads.clients[trial, p]] == 0:
            included[count] = p
            count += 1
    changes, is_shared, entries = gather(uploads, trial, included, count, server, work)
    for p in range(participants):
        for m in range(shared):
            number, i = sent[trial, p, m], entry_at(uploads, trial, p, m)
            if number != number:
                continue
            others[0], size, row = 0.0, 1, work.row_of[i]
            for q in range(count if row >= 0 else 0):
                if included[q] != p and is_shared[q, row]:
                    others[size] = changes[q, row]
                    size += 1
            # Errors have the other sign than models.
            residual = server[i] - number - middle(part_of(others, 0, (size,)))
            residuals[p, m] = min(max(residual, -LARGEST), LARGEST)
    release(entries, work)
    for q in range(count):
        included[q] = 0
    return residuals
