"""Built-in availabilities, one file each: ``psofed.availabilities.…``."""
