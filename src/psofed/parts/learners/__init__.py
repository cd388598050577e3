"""Built-in learners, one file each: ``psofed.learners.…``."""
