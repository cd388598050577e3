"""Built-in patterns, one file each: ``psofed.patterns.…``."""
