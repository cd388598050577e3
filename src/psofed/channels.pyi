# For type checkers; written by `make docs`.
from psofed.parts.channels.built_in import Lossy as Lossy
from psofed.parts.channels.built_in import Noisy as Noisy
from psofed.parts.channels.built_in import Private as Private
from psofed.parts.channels.built_in import Quantised as Quantised
