"""What the simulation will show, computed: the exact second moments of PSO-Fed, and the paper's theory.

Nothing in here imports the simulator; both read the same scenario.
"""
