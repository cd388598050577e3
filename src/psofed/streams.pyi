# For type checkers: psofed/__init__.py puts psofed.parts.streams here when it is imported.
from psofed.parts.streams import *
