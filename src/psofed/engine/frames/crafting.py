"""Frames of attacks on whole vectors, and of what attackers remember of their models."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.attackers import byzantine_of, common_normal, find_attackers, group_of
from psofed.engine.bodies import Body, Frame, Hook, Unpack, make_hook
from psofed.engine.hooks import REMEMBER, AttackState, Uploads
from psofed.parts.base import Attack
from psofed.parts.contexts import Conspiracy, Moment


def remember_hook(attack: Attack) -> Hook:
    """Return the hook of an attack that remembers its clients' models."""
    return make_hook(attack, "remember", REMEMBER, _make_remembering_frame)


def make_crafting_frame(unpack: Unpack, body: Body) -> Frame:
    """Return the frame of attackers who see all uploads as vectors: lane by lane, with clients in order."""

    def frame(
        token: int, n: int, attackers: AttackState, target: FloatArray, server: FloatArray, uploads: Uploads
    ) -> None:
        self = unpack(attackers.options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        num_clients, dimension = attackers.is_byzantine.shape[0], target.size
        attacking = np.empty(participants, np.bool_)
        column, row_of = np.empty(participants, np.int64), np.full(dimension, -1)
        for lane in range(lanes):
            key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
            count, present = find_attackers(n, attackers, dimension, uploads, lane, attacking), 0
            for p in range(participants):
                there = sent[p, 0, lane] == sent[p, 0, lane]
                present += there
                column[p] = clients[p, lane] if there else num_clients  # those that are absent come last
            if count == 0 and attackers.memory.shape[1] == 0:
                continue
            for p in range(participants):
                for m in range(shared):
                    if column[p] < num_clients:
                        row_of[entries[p, m, lane]] = 0
            met = 0
            for i in range(dimension):
                if row_of[i] == 0:
                    row_of[i] = met
                    met += 1
            entry_of, own, common = np.empty(met, np.int64), np.empty(met), np.empty(met)
            for i in range(dimension):
                if row_of[i] >= 0:
                    entry_of[row_of[i]] = i
                    own[row_of[i]] = target[i] - server[i, lane]
                    common[row_of[i]] = common_normal(key, gamma, n, dimension, i)
            others = present - count
            honest, honest_shared = np.zeros((others, met)), np.zeros((others, met), np.bool_)
            those, those_shared = np.zeros((count, met)), np.zeros((count, met), np.bool_)
            honest_clients, accomplice_clients = np.empty(others, np.int64), np.empty(count, np.int64)
            h = a = 0
            order = np.argsort(column)[:present]
            for p in order:
                for m in range(shared):
                    i = entries[p, m, lane]
                    if attacking[p]:
                        those[a, row_of[i]] = server[i, lane] - sent[p, m, lane]
                        those_shared[a, row_of[i]] = True
                    else:
                        honest[h, row_of[i]] = server[i, lane] - sent[p, m, lane]
                        honest_shared[h, row_of[i]] = True
                if attacking[p]:
                    accomplice_clients[a] = column[p]
                    a += 1
                else:
                    honest_clients[h] = column[p]
                    h += 1
            out = those.copy()
            body(
                self,
                Conspiracy(
                    honest, honest_shared, honest_clients, those, those_shared, own, entry_of, common, num_clients,
                    dimension, n, attackers.memory[lane],
                    np.empty(participants * participants + 2 * participants + 2 * met), accomplice_clients,
                    group_of(attackers, lane), byzantine_of(attackers, lane), attackers.client_memory[lane],
                ),
                out,
            )  # fmt: skip
            a = 0
            for p in order:
                if attacking[p]:
                    for m in range(shared):
                        i = entries[p, m, lane]
                        sent[p, m, lane] = server[i, lane] - out[a, row_of[i]]
                    a += 1
            for row in range(met):
                row_of[entry_of[row]] = -1

    return frame


def _make_remembering_frame(unpack: Unpack, body: Body) -> Frame:
    """Return the frame of what attackers remember after the local step; of all clients where the set is redrawn."""

    def frame(token: int, n: int, attackers: AttackState, target: FloatArray, clients: FloatArray) -> None:
        self = unpack(attackers.options)
        num_clients, dimension, lanes = clients.shape
        model = np.empty(dimension)
        for k in range(num_clients):
            for lane in range(lanes):
                if attackers.is_redrawn or attackers.is_byzantine[k, lane]:
                    for i in range(dimension):
                        model[i] = target[i] - clients[k, i, lane]
                    body(self, Moment(model, k, n), attackers.client_memory[lane, k])

    return frame
