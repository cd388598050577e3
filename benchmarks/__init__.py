"""Benchmarks: ratios within one run, because machines are noisy. `make bench` runs them all."""
