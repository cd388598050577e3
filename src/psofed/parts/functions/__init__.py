"""Functions to be learned, one file each: a client observes y = f(x) + ν.

A function's module has ``evaluate``, a hook of signature :data:`psofed.engine.hooks.FUNCTION`, and
``INPUT_DIMENSION``, the number of entries of x it takes, or None if it takes any.
"""
