"""Counter-based random streams and compiled kernels; the only package that imports Numba."""
