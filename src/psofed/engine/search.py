"""Attacks that try several strengths against the server's rule and use the most harmful one."""

from psofed.common.types import FloatArray
from psofed.engine.attackers import attacks_now, first_word
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import AttackState, Uploads, take_attack
from psofed.engine.server_side import AttackSide, RuleSide, SearchSide
from psofed.engine.server_steps import aggregate
from psofed.parts.plain import LARGEST


@kernel_part
def corrupt_at_best(
    attack: AttackSide,
    search: SearchSide,
    rule: RuleSide,
    n: int,
    target: FloatArray,
    server: FloatArray,
    uploads: Uploads,
    scratch: FloatArray,
) -> None:
    """Corrupt uploads in place, with the most harmful strength in each lane; ``scratch`` has shape (D, lanes).

    What hurts is how far the server's next model lies from where the mean of the clean uploads would take it.
    """
    attackers, sent = attack.attackers, uploads.sent
    corrupt = take_attack(attack.hook.address)
    participants, shared, lanes = sent.shape
    dimension = server.shape[0]
    _find_honest_mean(attackers, search, n, target, server, uploads)
    for lane in range(lanes):
        search.farthest[lane] = -1.0
    _copy(sent, search.clean)
    _copy(sent, search.best)
    for g in range(search.options.shape[0]):
        _copy(search.clean, sent)
        tried = AttackState(
            attackers.stream, attackers.probability, attackers.is_redrawn, attackers.is_byzantine, search.options[g],
            attackers.memory, attackers.members, attackers.sizes, attackers.everyone, attackers.client_memory,
        )  # fmt: skip
        corrupt(attack.hook.token, n, tried, target, server, uploads)
        for i in range(dimension):
            for lane in range(lanes):
                search.following[i, lane] = server[i, lane]
        aggregate(rule, n, target, uploads, scratch, search.following)
        for lane in range(lanes):
            away = 0.0
            for i in range(dimension):
                away += (search.following[i, lane] - search.honest[i, lane]) ** 2
            if search.counts[lane] < participants and away > search.farthest[lane] * (1.0 + 1e-9):
                search.farthest[lane] = away
                for p in range(participants):
                    for m in range(shared):
                        search.best[p, m, lane] = sent[p, m, lane]
    _copy(search.best, sent)


@kernel_part
def _find_honest_mean(
    attackers: AttackState,
    search: SearchSide,
    n: int,
    target: FloatArray,
    server: FloatArray,
    uploads: Uploads,
) -> None:
    clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
    participants, shared, lanes = sent.shape
    num_clients, dimension = attackers.is_byzantine.shape[0], target.size
    for i in range(server.shape[0]):
        for lane in range(lanes):
            search.honest[i, lane] = 0.0
    for lane in range(lanes):
        key, gamma = attackers.stream.key[lane], attackers.stream.gamma[lane]
        count = 0
        for p in range(participants):
            client = clients[p, lane]
            if attackers.is_byzantine[client, lane]:
                word = first_word(n, num_clients, client, dimension)
                if attacks_now(key, gamma, word, attackers.probability):
                    continue
            count += 1
            for m in range(shared):
                i = entries[p, m, lane]
                if abs(sent[p, m, lane]) <= LARGEST:
                    search.honest[i, lane] += sent[p, m, lane] - server[i, lane]
        search.counts[lane] = count
        for i in range(server.shape[0]):
            search.honest[i, lane] = server[i, lane] + search.honest[i, lane] / max(count, 1)


@kernel_part
def _copy(numbers: FloatArray, out: FloatArray) -> None:
    for p in range(min(numbers.shape[0], out.shape[0])):
        for m in range(min(numbers.shape[1], out.shape[1])):
            for lane in range(numbers.shape[2]):
                out[p, m, lane] = numbers[p, m, lane]
