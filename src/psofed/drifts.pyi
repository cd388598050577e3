# For type checkers: psofed/__init__.py puts psofed.parts.drifts here when it is imported.
from psofed.parts.drifts import *
