"""Frames: the loops over lanes, participants and entries that the engine puts around parts' bodies."""
