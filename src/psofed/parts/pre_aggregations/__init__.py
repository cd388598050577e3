"""Built-in pre-aggregations, one file each: ``psofed.pre_aggregations.…``."""
