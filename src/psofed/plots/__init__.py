"""Pictures: learning curves, theory and sweeps with Matplotlib."""
