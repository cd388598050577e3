# For type checkers: psofed/__init__.py puts psofed.parts.aggregations here when it is imported.
from psofed.parts.aggregations import *
