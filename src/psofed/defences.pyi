# For type checkers; written by `make docs`.
from psofed.parts.defences.built_in import Cusum as Cusum
from psofed.parts.defences.built_in import None_ as None_
