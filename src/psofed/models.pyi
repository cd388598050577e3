# For type checkers; written by `make docs`.
from psofed.parts.models.linear import Linear as Linear
from psofed.parts.models.rff import Rff as Rff
