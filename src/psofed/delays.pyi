# For type checkers: psofed/__init__.py puts psofed.parts.delays here when it is imported.
from psofed.parts.delays import *
