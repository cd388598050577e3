# For type checkers; written by `make docs`.
from psofed.parts.defences.cusum import Cusum as Cusum
from psofed.parts.defences.none import None_ as None_
