# For type checkers: psofed/__init__.py puts psofed.parts.learners here when it is imported.
from psofed.parts.learners import *
