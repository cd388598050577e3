"""The frames of aggregation rules: over one entry's numbers, or over the uploads as vectors."""

import numpy as np

from psofed.engine.bodies import Hook, make_hook
from psofed.engine.hooks import AGGREGATION
from psofed.parts.base import Aggregation
from psofed.parts.contexts import Numbers, Updates
from psofed.parts.plain import LARGEST


def aggregation_hook(rule: Aggregation) -> Hook:
    """Return the hook of a rule."""
    make_frame = _make_frame_over_entries if rule.over == "entries" else _make_frame_over_vectors
    return make_hook(rule, "combine", AGGREGATION, make_frame, rule.fewest_numbers())


def _make_frame_over_entries(unpack, body):
    def frame(token, target, uploads, options, own_step, server):
        self = unpack(options)
        entries, sent = uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        fewest = min(int(options[-1]), participants)
        # Entries are numbered as they are met, which is cheap where few of many are shared.
        row_of = np.full(target.size, -1)
        most = min(target.size, participants * shared)
        entry_of, count = np.empty(most, np.int64), np.empty(most, np.int64)
        values = np.empty((most, participants))
        for lane in range(lanes):
            met = 0
            for p in range(participants):
                for m in range(shared):
                    number = sent[p, m, lane]
                    if abs(number) <= LARGEST:
                        i = entries[p, m, lane]
                        row = row_of[i]
                        if row < 0:
                            row = met
                            met += 1
                            row_of[i] = row
                            entry_of[row] = i
                            count[row] = 0
                        values[row, count[row]] = target[i] - number
                        count[row] += 1
            for row in range(met):
                i, arrived = entry_of[row], count[row]
                row_of[i] = -1
                own = target[i] - server[i, lane]
                for j in range(arrived, fewest):
                    values[row, j] = own
                agreed = body(self, Numbers(values[row, : max(arrived, fewest)], own))
                if abs(agreed) <= LARGEST:
                    server[i, lane] -= arrived / participants * (agreed - own)

    return frame


def _make_frame_over_vectors(unpack, body):
    def frame(token, target, uploads, options, own_step, server):
        self = unpack(options)
        entries, sent = uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        row_of = np.full(target.size, -1)
        entry_of = np.empty(min(target.size, participants * shared), np.int64)
        rank = np.empty(participants, np.int64)
        for lane in range(lanes):
            met = answered = 0
            for p in range(participants):
                rank[p] = -1
                for m in range(shared):
                    if abs(sent[p, m, lane]) <= LARGEST:
                        i = entries[p, m, lane]
                        if row_of[i] < 0:
                            row_of[i] = met
                            entry_of[met] = i
                            met += 1
                        if rank[p] < 0:
                            rank[p] = answered
                            answered += 1
            if answered == 0:
                continue
            changes = np.zeros((answered, met))
            is_shared = np.zeros((answered, met), np.bool_)
            own, step = np.empty(met), np.empty(met)
            for p in range(participants):
                for m in range(shared):
                    if abs(sent[p, m, lane]) <= LARGEST:
                        i = entries[p, m, lane]
                        changes[rank[p], row_of[i]] = server[i, lane] - sent[p, m, lane]
                        is_shared[rank[p], row_of[i]] = True
            for row in range(met):
                i = entry_of[row]
                row_of[i] = -1
                own[row] = target[i] - server[i, lane]
                step[row] = -own_step[i, lane]
            agreed = body(self, Updates(changes, is_shared, own, step))
            for row in range(met):
                if abs(agreed[row]) <= LARGEST:
                    server[entry_of[row], lane] -= answered / participants * agreed[row]

    return frame
