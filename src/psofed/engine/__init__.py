"""The engine: counter-based streams, compiled kernels and blocks of trials; the only room with Numba."""
