"""Built-in drifts, one file each: ``psofed.drifts.…``."""
