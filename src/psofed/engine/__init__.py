"""The simulation engine: one vector step for all clients, and one trial at a time for everything else."""
