"""The metrics of a result: their names, what they are called in tables, and what they say in files."""

METRIC_TITLES = {"network_mse": "network MSE", "server_msd": "server MSD", "test_mse": "test MSE"}

# In words, for NetCDF; all are squares of dimensionless numbers.
LONG_NAMES = {
    "network_mse": "mean squared error over all clients",
    "server_msd": "squared distance of the server's model from the target",
    "test_mse": "mean squared error of the server's model on its test set",
}

# What the same samples give without a federation (:mod:`psofed.simulation.baselines`).
BASELINE_TITLES = {
    "alone": "each client alone",
    "pooled": "all data pooled, online",
    "least_squares": "all data pooled, least squares in hindsight",
    "average": "running mean, no model",
}
