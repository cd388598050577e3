# For type checkers: psofed/__init__.py puts psofed.parts.availabilities here when it is imported.
from psofed.parts.availabilities import *
