"""Steps of the kernels that belong to attackers: who attacks, poisoned samples, memories and corrupted uploads."""

from psofed.common.types import FloatArray
from psofed.engine.attackers import set_byzantine
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Uploads, take_attack, take_poison, take_remember
from psofed.engine.server_side import AttackSide, GroupSide


@kernel_part
def redraw_byzantine(attack: AttackSide, t: int) -> None:
    """Set the Byzantine set of iteration number `t` of a chunk, if it is redrawn."""
    if attack.sets.size:
        set_byzantine(attack.sets[t], attack.attackers)


@kernel_part
def poison_samples(
    n: int,
    k: int,
    attack: AttackSide,
    groups: GroupSide | None,
    target: FloatArray,
    sample: FloatArray,
    error: FloatArray,
) -> None:
    """Let the attackers among client k's trials change its sample; no client belongs to two groups."""
    if groups is None:
        take_poison(attack.hook.address)(attack.hook.token, n, k, attack.attackers, target, sample, error)
    else:
        for side in groups.sides:
            if side.on_samples:
                take_poison(side.hook.address)(side.hook.token, n, k, side.attackers, target, sample, error)


@kernel_part
def poisons_samples(attack: AttackSide, groups: GroupSide | None) -> bool:
    """Tell whether any group changes samples."""
    poisons = attack.on_samples
    if groups is not None:
        for side in groups.sides:
            poisons = poisons or side.on_samples
    return poisons


@kernel_part
def corrupt_uploads(
    attack: AttackSide,
    groups: GroupSide | None,
    n: int,
    target: FloatArray,
    server: FloatArray,
    uploads: Uploads,
) -> None:
    """Let the attackers change uploads in place."""
    if groups is not None:
        _corrupt_by_groups(groups, n, target, server, uploads)
    elif attack.on_uploads:
        take_attack(attack.hook.address)(attack.hook.token, n, attack.attackers, target, server, uploads)


@kernel_part
def _corrupt_by_groups(
    groups: GroupSide, n: int, target: FloatArray, server: FloatArray, uploads: Uploads
) -> None:
    """Corrupt uploads in place: each group sees those that nobody has changed yet."""
    sent, clean, changed = uploads.sent, groups.clean, groups.changed
    participants, shared, lanes = sent.shape
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                clean[p, m, lane] = changed[p, m, lane] = sent[p, m, lane]
    for side in groups.sides:
        if not side.on_uploads:
            continue
        take_attack(side.hook.address)(side.hook.token, n, side.attackers, target, server, uploads)
        for p in range(participants):
            for m in range(shared):
                for lane in range(lanes):
                    if side.attackers.is_byzantine[uploads.clients[p, lane], lane]:
                        changed[p, m, lane] = sent[p, m, lane]
                    sent[p, m, lane] = clean[p, m, lane]
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                sent[p, m, lane] = changed[p, m, lane]


@kernel_part
def remember_models(
    attack: AttackSide, groups: GroupSide | None, n: int, target: FloatArray, clients: FloatArray
) -> None:
    """Let attackers that remember models see those of their clients, after the local step."""
    if groups is not None:
        for side in groups.sides:
            _remember(side, n, target, clients)
    else:
        _remember(attack, n, target, clients)


@kernel_part
def _remember(attack: AttackSide, n: int, target: FloatArray, clients: FloatArray) -> None:
    hook = attack.remember
    if hook.address != 0:
        take_remember(hook.address)(hook.token, n, attack.attackers, target, clients)
