# For type checkers: psofed/__init__.py puts psofed.parts.patterns here when it is imported.
from psofed.parts.patterns import *
