"""Bounds on what a node takes from a server before it allocates memory, so that a hostile server cannot crash it."""

MAX_ROUND = 10**9
MAX_SEED = 2**63 - 1
MAX_ENTRIES = 10**8
"""Entries of a model, shared or not, that a client holds unless told otherwise: 800 MB as float64."""

READY_MADE_ENTRIES = 10**7
"""The same for the ready-made node, which fits one linear model: 80 MB."""

MAX_DESCRIPTION = 1 << 20
"""Bytes of a run description and of a presence."""
