"""The engine: counter-based streams, compiled kernels and blocks of trials; the only package that imports Numba."""
