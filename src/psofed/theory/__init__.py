"""Predicts what a simulation will show: the exact second moments of PSO-Fed, and the paper's theory.

Nothing here imports the simulator; both read the same scenario. From the bottom up:

============= ========================================================================================
``coverage``  what has no theory, by name
``model``     the scenario as the theory sees it, but for the stepsize
``groups``    clients that stand for each other
``law``       effect of a sample and an upload; ``presence``: who takes part; ``masks``: which entries
``iteration`` one iteration as a linear map of second moments
``solve``     steady state, spectral radius and learning curve of its period (``krylov``, ``offsets``)
the rest      answers: ``predict``, ``optimal_stepsize``, ``tune`` …
============= ========================================================================================
"""
