"""PSO-Fed as a Flower app, on public names of Flower only."""
