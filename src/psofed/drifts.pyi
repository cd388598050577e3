# For type checkers; written by `make docs`.
from psofed.parts.drifts.built_in import Jump as Jump
from psofed.parts.drifts.built_in import RandomWalk as RandomWalk
from psofed.parts.drifts.built_in import Sinusoid as Sinusoid
