"""Processes, files and commands of a federation of machines."""
