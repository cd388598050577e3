# For type checkers; written by `make docs`.
from psofed.parts.patterns.built_in import Random as Random
from psofed.parts.patterns.built_in import RoundRobin as RoundRobin
