# For type checkers: psofed/__init__.py puts psofed.parts.pre_aggregations here when it is imported.
from psofed.parts.pre_aggregations import *
