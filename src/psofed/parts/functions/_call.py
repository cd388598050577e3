"""Calls a function's hook from Python."""

from psofed.engine.compiling import compiled


@compiled
def call_function(function, inputs, out):
    """Write f of the columns of ``inputs`` (d, count) into ``out`` (count,)."""
    function(inputs, out)
