"""Predicts what a simulation will show: the exact second moments of PSO-Fed, and the paper's theory.

Nothing here imports the simulator; both read the same scenario. From the bottom up:

=========== ==========================================================================================
``moments`` the numbers that are tracked: E[g gᵀ], E[g v_kᵀ], E[v_k v_lᵀ] and their means
``steps``   what one LMS step, one upload and one download do to them
``maps``    one whole iteration as a linear map: in full, with pairs eliminated, or for given windows
``model``   which of these a scenario means
``solve``   ``select(model)`` picks the cheapest exact method: steady state, spectral radius, curves
the rest    answers: ``predict``, ``predict_stepsizes``, ``optimal_stepsize``, ``tune``, ``attack_limits`` …
=========== ==========================================================================================
"""
