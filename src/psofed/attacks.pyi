# For type checkers: psofed/__init__.py puts psofed.parts.attacks here when it is imported.
from psofed.parts.attacks import *
