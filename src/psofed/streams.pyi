# For type checkers; written by `make docs`.
from psofed.parts.streams.delay_line import DelayLine as DelayLine
from psofed.parts.streams.independent import Independent as Independent
