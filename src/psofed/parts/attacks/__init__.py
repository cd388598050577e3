"""Built-in attacks, one file each: ``psofed.attacks.…``."""
