"""Theory: predicts what the simulation will show, from the scenario alone."""
