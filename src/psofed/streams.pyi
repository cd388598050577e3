# For type checkers; written by `make docs`.
from psofed.parts.streams.built_in import DelayLine as DelayLine
from psofed.parts.streams.built_in import Independent as Independent
