"""Start of a run: from a new model, or where an earlier run stopped."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.layout import Arrays, ModelLayout
from psofed.federation.protocol.masks import DERIVATION, Sharing
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.checkpoint import CheckpointStore, ServerState
from psofed.federation.server.step import ServerStep


def new_session(initial: Arrays, layout: ModelLayout, settings: Mapping[str, Any]) -> ServerState:
    """Return the state before the first round."""
    return ServerState(
        session=scheduler().new_id(),
        settings=dict(settings),
        round_number=0,
        model=np.array(layout.flatten(initial)),
        layout=layout,
        kept=layout.kept(initial),
    )


def resumed_session(store: CheckpointStore, layout: ModelLayout, settings: Mapping[str, Any]) -> ServerState:
    """Return the state of the newest checkpoint; it must be of the same model and settings, and usable."""
    state = load_usable(store)
    was = state.layout.columns
    if layout.columns != was and state.layout == replace(layout, columns=was):
        named = "columns without names" if was is None else f"the columns {was}"
        raise PsofedError(
            f"{store.path} belongs to a run with {named}; got {layout.columns or 'columns without names'}: "
            "a resumed run must keep its columns"
        )
    if state.layout != layout:
        raise PsofedError(f"{store.path} holds another model than the one given")
    changed = [name for name, value in settings.items() if state.settings.get(name) != value]
    if changed:
        before = ", ".join(f"{name} = {state.settings.get(name)}" for name in changed)
        raise PsofedError(f"{store.path} was made with {before}; a resumed run must keep that")
    return state


def session_settings(sharing: Sharing, rounds: RoundPlan, step: ServerStep) -> dict[str, Any]:
    """Return the settings that must not change within a session, as JSON holds them."""
    return {
        "num_shared": sharing.num_shared,
        "pattern": sharing.pattern,
        "coordinated": sharing.coordinated,
        "seed": sharing.seed,
        "derivation": DERIVATION,
        "newcomers": rounds.newcomers,
        "weighted": step.weighted,
        "aggregation": repr(step.rule),
        "pre_aggregation": None if step.pre is None else repr(step.pre),
        "sync_every": rounds.sync_every,
        "defence": None if step.suspects is None else repr(step.suspects.defence),
    }


def load_usable(store: CheckpointStore) -> ServerState:
    """Return the newest checkpoint, or raise a PsofedError that names others if it is damaged or poisoned."""
    store.settle()
    state = store.load()
    with np.errstate(over="ignore"):
        usable = bool(np.isfinite(np.sum(np.square(state.model.astype(np.float64)))))
    if not usable:
        raise PsofedError(
            f"the model in {store.path} is not finite, or too large to compute with{store.way_back()}"
        )
    return state
