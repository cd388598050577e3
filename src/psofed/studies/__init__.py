"""Questions over many runs: sweeps over scenarios, theory compared with simulation, advice on your own data."""
