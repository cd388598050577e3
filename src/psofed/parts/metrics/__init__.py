"""Metrics beyond those that every run measures, one file each: ``--metric`` finds them by their names."""
