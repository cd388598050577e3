# For type checkers; written by `make docs`.
from psofed.parts.delays.built_in import Fixed as Fixed
from psofed.parts.delays.built_in import Geometric as Geometric
