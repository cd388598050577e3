# For type checkers; written by `make docs`.
from psofed.parts.models.built_in import Linear as Linear
from psofed.parts.models.built_in import Rff as Rff
