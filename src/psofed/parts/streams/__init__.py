"""Built-in streams, one file each: ``psofed.streams.…``."""
