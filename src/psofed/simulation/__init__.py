"""Monte Carlo simulation of scenarios, and what own data give without a federation."""
