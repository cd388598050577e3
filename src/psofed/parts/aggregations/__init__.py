"""Built-in aggregations, one file each: ``psofed.aggregations.…``."""
