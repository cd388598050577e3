"""Literal implementations of the recursions, on the same draws as the engine."""
