# For type checkers; written by `make docs`.
from psofed.parts.drifts.jump import Jump as Jump
from psofed.parts.drifts.random_walk import RandomWalk as RandomWalk
from psofed.parts.drifts.sinusoid import Sinusoid as Sinusoid
