"""Base classes of the families of parts, and what the engine expects of each."""
