"""Shared by every package: errors, checks of values, files, and the types they speak of."""
