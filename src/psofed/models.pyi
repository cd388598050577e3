# For type checkers: psofed/__init__.py puts psofed.parts.models here when it is imported.
from psofed.parts.models import *
