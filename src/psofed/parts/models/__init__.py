"""Built-in models, one file each: ``psofed.models.…``."""
