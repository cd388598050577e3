"""Steps of the kernels that belong to the server: the defence and the aggregation."""

from psofed.common.types import FloatArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Uploads, take_aggregation, take_defence, take_mix
from psofed.engine.root_data import own_step
from psofed.engine.server_side import DefenceSide, RuleSide
from psofed.parts.plain import LARGEST


@kernel_part
def leave_out(defence: DefenceSide, n: int, server: FloatArray, uploads: Uploads) -> None:
    """Let the defence inspect the uploads; values of excluded clients become NaN."""
    hook = defence.hook
    take_defence(hook.address)(hook.token, n, server, uploads, hook.options, defence.watching)


@kernel_part
def move_by_mean(uploads: Uploads, server: FloatArray, change: FloatArray) -> None:
    """Move each entry of ``server`` by the mean over all participants of what they sent less its old value.

    ``change`` (D, lanes) is scratch.
    """
    entries, sent = uploads.entries, uploads.sent
    participants, shared, lanes = sent.shape
    for i in range(server.shape[0]):
        for lane in range(lanes):
            change[i, lane] = 0.0
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                i, number = entries[p, m, lane], sent[p, m, lane]
                update = number - server[i, lane]
                change[i, lane] += update if abs(number) <= LARGEST else 0.0
    for i in range(server.shape[0]):
        for lane in range(lanes):
            server[i, lane] += change[i, lane] / max(uploads.counts[lane], 1)


@kernel_part
def aggregate(
    rule: RuleSide, n: int, target: FloatArray, uploads: Uploads, scratch: FloatArray, server: FloatArray
) -> None:
    """Update the server with the uploads of iteration n; ``scratch`` has shape (D, lanes)."""
    mixing, mix, hook = rule.mixing, rule.mixing.hook, rule.hook
    if mixing.is_on:
        take_mix(mix.address)(
            mix.token, n, mixing.num_clients, target, uploads, mix.options, mixing.stream, mixing.memory, server
        )  # fmt: skip
        uploads = mixing.memory.mixed
    if rule.is_mean:
        move_by_mean(uploads, server, scratch)
        return
    if rule.root.rows.shape[0]:
        own_step(rule.root, server, scratch)
    take_aggregation(hook.address)(hook.token, target, uploads, hook.options, scratch, rule.memory, server)
