"""Drifts, one file each: how the target vector w* moves while the clients learn it.

A drift's module has

``FIELDS``
    Names of the fields of :class:`psofed.scenario.drift.Drift` that it takes.
``start(drift, dimension, stream) -> state``
    What it must remember between chunks, an array (D, lanes).
``draw_moves(drift, stream, first, state, out)``
    Fills ``out[t]`` (D, lanes) with w*_n − w*_0 of iteration n = first + t and updates ``state`` in place.
``increment_variance(drift)``
    Only if w*_{n+1} − w*_n is white with this variance in every entry: what theory needs.

Draws come from a stream of their own, so a drift never changes data, participants, masks or attack.
"""
