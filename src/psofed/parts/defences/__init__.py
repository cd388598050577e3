"""Built-in defences, one file each: ``psofed.defences.…``."""
