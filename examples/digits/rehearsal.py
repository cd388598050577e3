"""An attack carried out where all uploads have arrived, by an attacker who sees whatever the attack says it knows."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.federation_new.protocol.corruption import draw_attack, draw_normals
from psofed.federation_new.server.step import Outcome, ServerStep, Upload
from psofed.parts.base import Attack
from psofed.parts.plain import check_memory, corrupt_uploads

_LARGE = 2_000  # corrupted numbers, from which on an attack is compiled
_EVERYBODY = 2**64 - 1  # whose normal numbers all attackers have in common


class Rehearsal:
    """An attack by the clients that ``attack.clients`` names, with draws that seed, client and round determine."""

    def __init__(self, attack: Attack, seed: int) -> None:
        self.attack, self.seed = attack, seed
        self._memory = np.zeros(0)

    def corrupt(self, number: int, model: NDArray[Any], uploads: Mapping[str, Upload]) -> dict[str, Upload]:
        """Return the uploads (entries, values) by client, those of Byzantine clients corrupted."""
        attack, names = self.attack, sorted(uploads)
        numbers = {name: k for k, name in enumerate(names)}
        byzantine = [str(client) for client in attack.clients] or names[: attack.num_byzantine]
        entries = np.unique(np.concatenate([uploads[name][0] for name in names]))
        if size := attack.group_memory_size(len(names), len(model)):
            check_memory(attack, len(names), len(model))
            self._memory = self._memory if self._memory.size else np.zeros(size)
            entries = np.arange(model.size)
        sent = np.full((len(names), len(entries)), np.nan)
        attacking, normals = np.zeros(len(names), np.bool_), np.zeros_like(sent)
        for p, name in enumerate(names):
            indices, values = uploads[name]
            sent[p, np.searchsorted(entries, indices)] = values
            if name in byzantine:
                attacking[p], normals[p] = draw_attack(attack, self.seed, p, number, len(entries))
        corrupt: Callable[..., NDArray[Any]] = corrupt_uploads
        if attacking.sum() * len(entries) >= _LARGE:
            from psofed.engine.corrupt import corrupt_compiled as corrupt
        received = corrupt(
            attack, uploads=sent, attacking=attacking, server=np.asarray(model, np.float64)[entries],
            clients=np.arange(len(names)), iteration=number, normals=normals, num_clients=len(names),
            memory=self._memory, group=np.sort([numbers[name] for name in byzantine if name in numbers]),
            common_normals=draw_normals(self.seed, _EVERYBODY, number, len(entries)),
        )  # fmt: skip
        changed = dict(uploads)
        for p, name in enumerate(names):
            if attacking[p]:
                indices = uploads[name][0]
                changed[name] = indices, received[p, np.searchsorted(entries, indices)]
        return changed


def attack_step(step: ServerStep, attack: Attack | None, seed: int) -> None:
    """Let an attack corrupt what arrives before the server's step sees it."""
    if attack is None:
        return
    rehearsal, take = Rehearsal(attack, seed), step.take

    def attacked(number: int, model: Any, uploads: Any, examples: Any) -> Outcome:
        return take(number, model, rehearsal.corrupt(number, model, uploads), examples)

    step.take = attacked  # type: ignore[method-assign]
