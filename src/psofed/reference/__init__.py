"""Literal forms of the recursions, slow and plain, on the very draws that the engine makes."""
