# For type checkers; written by `make docs`.
from psofed.parts.patterns.random import Random as Random
from psofed.parts.patterns.round_robin import RoundRobin as RoundRobin
