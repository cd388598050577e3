"""Monte Carlo simulation of scenarios, and baselines without a federation."""
