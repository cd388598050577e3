# For type checkers: psofed/__init__.py puts psofed.parts.defences here when it is imported.
from psofed.parts.defences import *
