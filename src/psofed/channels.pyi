# For type checkers: psofed/__init__.py puts psofed.parts.channels here when it is imported.
from psofed.parts.channels import *
