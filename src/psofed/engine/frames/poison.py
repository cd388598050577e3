"""The frame of attacks on data: one call of the body for each sample that is poisoned."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.attackers import attacks_now, byzantine_of, first_word, group_of, own_normal
from psofed.engine.bodies import Body, Frame, Hook, Unpack, make_hook
from psofed.engine.hooks import POISON, AttackState
from psofed.parts.base import Attack
from psofed.parts.contexts import Sample
from psofed.parts.part import takes_memory


def poison_hook(attack: Attack) -> Hook:
    """Return the hook of an attack on samples."""
    return make_hook(attack, "poison", POISON, _make_frame)


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    has_memory = takes_memory(body)

    def frame(
        token: int,
        n: int,
        k: int,
        attackers: AttackState,
        target: FloatArray,
        inputs: FloatArray,
        noise: FloatArray,
    ) -> None:
        self = unpack(attackers.options)
        dimension, lanes = inputs.shape
        word = first_word(n, attackers.is_byzantine.shape[0], k, dimension)
        for lane in range(lanes):
            if not attackers.is_byzantine[k, lane]:
                continue
            key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
            if attacks_now(key, gamma, word, attackers.probability):
                clean, normals = np.empty(dimension), np.empty(dimension)
                label = noise[lane]
                for i in range(dimension):
                    clean[i] = inputs[i, lane]
                    normals[i] = own_normal(key, gamma, word, i)
                    label += target[i] * clean[i]
                sample = Sample(
                    clean, label, normals, k, n, group_of(attackers, lane), byzantine_of(attackers, lane)
                )
                if has_memory:
                    poisoned, wrong = body(self, sample, attackers.client_memory[lane, k])
                else:
                    poisoned, wrong = body(self, sample)
                for i in range(dimension):
                    inputs[i, lane] = poisoned[i]
                    wrong -= target[i] * poisoned[i]
                noise[lane] = wrong

    return frame
