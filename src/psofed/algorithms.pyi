# For type checkers: psofed/__init__.py puts psofed.parts.algorithms here when it is imported.
from psofed.parts.algorithms import *
