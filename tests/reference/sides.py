"""A part's compiled method on arrays of one trial, without a run."""

from typing import Any

import numpy as np

from psofed.engine.attackers import make_attackers
from psofed.engine.attacks import AttackSide, add_hooks
from psofed.engine.hooks import Hooks, options_of, why_python
from psofed.engine.state import Layout
from psofed.engine.streams import Stream
from psofed.engine.tables import STAGE, KernelTable
from psofed.engine.uploads import Uploads, make_uploads, make_work
from psofed.parts.base import Attack

_NOTHING = np.zeros((1, 1, 1))


def attack_once(
    attack: Attack,
    byzantine: Any,
    stream: Stream,
    target: Any,
    iteration: int,
    *,
    server: Any = None,
    messages: Uploads | None = None,
    sample: Any = _NOTHING,
    residual: Any = _NOTHING[0],
) -> None:
    """Let an attack change uploads or a sample of client 0, in place."""
    messages, hooks = make_uploads(1, 1, 1) if messages is None else messages, Hooks()
    attackers = make_attackers([attack], [byzantine], [stream], [len(target)], len(byzantine))
    side = AttackSide(
        *np.zeros((3, 1), np.int64), options_of(attack)[None], attackers, messages,
        np.zeros((1, len(target))) if server is None else (target - server)[None].copy(), target, target, sample,
        residual, _NOTHING, Layout(len(byzantine), 0, 0), make_work(*messages.sent.shape[1:], len(target)),
        _NOTHING, _NOTHING,
    )  # fmt: skip
    add_hooks(side, [attack], hooks)
    assert why_python(attack) is None
    table = KernelTable(side)
    STAGE(int(side.on_samples[0] or side.on_uploads[0]))(iteration, 0, 0, table.address)
