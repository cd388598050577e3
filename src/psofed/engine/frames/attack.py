"""The frame of attacks on uploads: one call of the body for each number that is attacked."""

import numpy as np
from numba.extending import register_jitable

from psofed.engine.attackers import attacks_now, common_normal, first_word, own_normal, redraw_byzantine
from psofed.engine.bodies import Hook, MakeFrame, make_hook, make_plain_hook
from psofed.engine.hooks import ATTACK
from psofed.parts.base import Attack
from psofed.parts.contexts import Upload, UploadAndAccomplices, UploadAndEveryone, UploadAndServer

_NOBODY = np.zeros(0)


def attack_hook(attack: Attack) -> Hook:
    """Return the hook of an attack on uploads."""
    return make_hook(attack, "corrupt", ATTACK, _FRAMES[attack.knows])


def no_attack() -> Hook:
    """Return a hook that changes nothing."""
    return make_plain_hook(ATTACK, _nothing)


def _nothing(token, n, attackers, target, server, uploads):
    pass


@register_jitable
def _upload(value, entry, client, n, normal, common, server, accomplices, honest):
    return Upload(value, entry, client, n, normal, common)


@register_jitable
def _and_server(value, entry, client, n, normal, common, server, accomplices, honest):
    return UploadAndServer(value, entry, client, n, normal, common, server)


@register_jitable
def _and_accomplices(value, entry, client, n, normal, common, server, accomplices, honest):
    return UploadAndAccomplices(value, entry, client, n, normal, common, server, accomplices)


@register_jitable
def _and_everyone(value, entry, client, n, normal, common, server, accomplices, honest):
    return UploadAndEveryone(value, entry, client, n, normal, common, server, accomplices, honest)


def _make_frame_alone(unpack, body, context):
    """Return the frame of attackers who see none of the others' uploads."""

    def frame(token, n, attackers, target, server, uploads):
        self = unpack(attackers.options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        num_clients, dimension = attackers.is_byzantine.shape[0], target.size
        redraw_byzantine(n, attackers)
        for p in range(participants):
            for lane in range(lanes):
                client = clients[p, lane]
                if not attackers.is_byzantine[client, lane]:
                    continue
                key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
                word = first_word(n, num_clients, client, dimension)
                if attacks_now(key, gamma, word, attackers.probability):
                    for m in range(shared):
                        i = entries[p, m, lane]
                        upload = context(
                            target[i] - sent[p, m, lane], i, client, n,
                            own_normal(key, gamma, word, i), common_normal(key, gamma, n, dimension, i),
                            target[i] - server[i, lane], _NOBODY, _NOBODY,
                        )  # fmt: skip
                        sent[p, m, lane] = target[i] - body(self, upload)

    return frame


def _make_frame_together(unpack, body, context):
    """Return the frame of attackers who see what others upload: lane by lane, with clients in order."""

    def frame(token, n, attackers, target, server, uploads):
        self = unpack(attackers.options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        num_clients, dimension = attackers.is_byzantine.shape[0], target.size
        redraw_byzantine(n, attackers)
        attacking = np.empty(participants, np.bool_)
        column = np.empty(participants, np.int64)
        place = np.full((participants, dimension), -1)
        clean = np.empty((participants, shared))
        accomplices, honest = np.empty(participants), np.empty(participants)
        for lane in range(lanes):
            key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
            count = 0
            for p in range(participants):
                word = first_word(n, num_clients, clients[p, lane], dimension)
                attacking[p] = attackers.is_byzantine[clients[p, lane], lane] and attacks_now(
                    key, gamma, word, attackers.probability
                )
                count += attacking[p]
            if count == 0:
                continue
            for p in range(participants):
                column[p] = clients[p, lane]
                for m in range(shared):
                    clean[p, m] = target[entries[p, m, lane]] - sent[p, m, lane]
                    place[p, entries[p, m, lane]] = m
            order = np.argsort(column)
            for p in range(participants):
                if not attacking[p]:
                    continue
                word = first_word(n, num_clients, clients[p, lane], dimension)
                for m in range(shared):
                    i = entries[p, m, lane]
                    num_accomplices = num_honest = 0
                    for other in order:
                        if place[other, i] < 0:
                            continue
                        if attacking[other]:
                            accomplices[num_accomplices] = clean[other, place[other, i]]
                            num_accomplices += 1
                        else:
                            honest[num_honest] = clean[other, place[other, i]]
                            num_honest += 1
                    upload = context(
                        clean[p, m], i, clients[p, lane], n,
                        own_normal(key, gamma, word, i), common_normal(key, gamma, n, dimension, i),
                        target[i] - server[i, lane], accomplices[:num_accomplices], honest[:num_honest],
                    )  # fmt: skip
                    sent[p, m, lane] = target[i] - body(self, upload)
            for p in range(participants):
                for m in range(shared):
                    place[p, entries[p, m, lane]] = -1

    return frame


def _frame_upload(unpack, body):
    return _make_frame_alone(unpack, body, _upload)


def _frame_server(unpack, body):
    return _make_frame_alone(unpack, body, _and_server)


def _frame_accomplices(unpack, body):
    return _make_frame_together(unpack, body, _and_accomplices)


def _frame_everyone(unpack, body):
    return _make_frame_together(unpack, body, _and_everyone)


_FRAMES: dict[str, MakeFrame] = {
    "upload": _frame_upload,
    "server": _frame_server,
    "accomplices": _frame_accomplices,
    "everyone": _frame_everyone,
}
