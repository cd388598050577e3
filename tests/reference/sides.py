"""A part's compiled method on arrays of one trial, without a run."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from psofed.engine.attacks import AttackSide
from psofed.engine.hooks import Hooks, why_python
from psofed.engine.state import Layout, Uploads, Work
from psofed.engine.streams import Stream
from psofed.engine.tables import STAGE, KernelTable
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
    uploads = Uploads(1, 1, 1) if messages is None else messages
    known = np.zeros((1, len(target))) if server is None else (target - server)[None].copy()
    setup: Any = SimpleNamespace(
        scenario=SimpleNamespace(attacks=[attack], num_clients=len(byzantine), dimension=len(target)),
        fleet=SimpleNamespace(byzantine_mask=lambda _attack: byzantine), stream=lambda *_source: stream,
        trials=range(1), entries=len(target), exchange=None, uploads=uploads, hooks=Hooks(),
        state=SimpleNamespace(known=known, base=target, target=target, models=_NOTHING),
        layout=Layout(len(byzantine), 0, 0), work=Work(*uploads.sent.shape[1:], len(target)),
    )  # fmt: skip
    side = AttackSide(setup, sample, residual)
    assert why_python(attack) is None
    table = KernelTable(side)
    STAGE(int(side.on_samples[0] or side.on_uploads[0]))(iteration, 0, 0, table.address)
