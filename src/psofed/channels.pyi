# For type checkers; written by `make docs`.
from psofed.parts.channels.lossy import Lossy as Lossy
from psofed.parts.channels.noisy import Noisy as Noisy
from psofed.parts.channels.private import Private as Private
from psofed.parts.channels.quantised import Quantised as Quantised
