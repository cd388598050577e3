"""Chooses how to solve a model: ``select(model)`` returns the cheapest exact method for its tags.

======================= ========================== =====================================================================
method                  needs                      idea
======================= ========================== =====================================================================
:class:`Reduced`        white inputs, separable    eliminate pairs, lump clients: 6n + 1 unknowns
                        masks
:class:`Windows`        white inputs, an offset    solve given offsets, pairs eliminated, compiled; average over offsets
                        per client
:class:`Scattered`      correlated inputs, an      solve given offsets in full; correct a small sample by white inputs
                        offset per client
:class:`Full`           correlated inputs,         keep all moments, or eliminate pairs if their averages suffice
                        separable masks
:class:`ServerHeld`     clients that hold no model E[g gᵀ] of the server alone
:class:`Opened`         parts that the paper's     keep all moments, with tables of who is there
                        iteration has not
======================= ========================== =====================================================================

A new case is a new :class:`~psofed.theory.solve.method.Method` in :data:`METHODS`, and a tag if no present one tells
it apart (:attr:`psofed.theory.model.TheoryModel.tags`).
"""

from psofed.theory.model import TheoryModel
from psofed.theory.solve.full import Full
from psofed.theory.solve.method import Method
from psofed.theory.solve.opened import Opened
from psofed.theory.solve.reduced import Reduced
from psofed.theory.solve.scattered import Scattered
from psofed.theory.solve.server_held import ServerHeld
from psofed.theory.solve.windows import Windows

# From the cheapest to the most general: the first whose needs a model meets is taken.
METHODS: tuple[type[Method], ...] = (ServerHeld, Opened, Reduced, Windows, Scattered, Full)


def select(model: TheoryModel) -> Method:
    """Return the cheapest method that can solve a model.

    Examples
    --------
    >>> from psofed import Data, Scenario
    >>> type(select(TheoryModel(Scenario(num_clients=5, dimension=3)))).__name__
    'Reduced'
    >>> data = Data(input_correlation=0.5)
    >>> type(select(TheoryModel(Scenario(num_clients=5, dimension=3, data=data)))).__name__
    'Full'
    """
    return next(method for method in METHODS if method.needs <= model.tags)(model)
