# For type checkers: psofed/__init__.py puts psofed.parts.functions here when it is imported.
from psofed.parts.functions import *
