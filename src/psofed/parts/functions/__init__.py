"""Built-in functions, one file each: ``psofed.functions.…``."""
