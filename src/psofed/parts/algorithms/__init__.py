"""Built-in algorithms, one file each: ``psofed.algorithms.…``."""
