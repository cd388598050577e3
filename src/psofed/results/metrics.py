"""The metrics of a result: their names, what they are called in tables, and what they say in files."""

from psofed.scenario import Scenario

METRIC_TITLES = {"network_mse": "network MSE", "server_msd": "server MSD", "test_mse": "test MSE"}

# With [evasion] in the scenario also these, on inputs moved to hurt most.
EVASION_TITLES = {
    "evasion_test_mse": "test MSE, moved inputs",
    "evasion_network_mse": "network MSE, moved inputs",
}

ALL_TITLES = METRIC_TITLES | EVASION_TITLES

# In words, for NetCDF; all are squares of dimensionless numbers.
LONG_NAMES = {
    "network_mse": "mean squared error over all clients",
    "server_msd": "squared distance of the server's model from the target",
    "test_mse": "mean squared error of the server's model on its test set",
    "evasion_test_mse": "mean squared error of the server's model on inputs moved to hurt most",
    "evasion_network_mse": "mean squared error over all clients on inputs moved to hurt most",
}

# What the same samples give without a federation (:mod:`psofed.simulation.baselines`).
BASELINE_TITLES = {
    "alone": "each client alone",
    "pooled": "all data pooled, online",
    "least_squares": "all data pooled, least squares in hindsight",
    "average": "running mean, no model",
}


def measured_metrics(scenario: Scenario) -> tuple[str, ...]:
    """Return the metrics whose steady state a simulation of a scenario measures.

    Examples
    --------
    >>> measured_metrics(Scenario(num_clients=5, dimension=2))
    ('network_mse', 'server_msd', 'test_mse')
    """
    return (*METRIC_TITLES, *(EVASION_TITLES if scenario.evasion is not None else ()))
