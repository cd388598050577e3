"""The numbers that both theories track: second moments, first moments, and how they lie in memory."""
