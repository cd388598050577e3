"""Built-in delays, one file each: ``psofed.delays.…``."""
