"""Built-in channels, one file each: ``psofed.channels.…``."""
