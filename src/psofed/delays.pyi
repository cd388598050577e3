# For type checkers; written by `make docs`.
from psofed.parts.delays.fixed import Fixed as Fixed
from psofed.parts.delays.geometric import Geometric as Geometric
