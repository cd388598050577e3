# For type checkers; written by `make docs`.
from psofed.parts.functions.root_sine import RootSine as RootSine
from psofed.parts.functions.sinc import Sinc as Sinc
from psofed.parts.functions.sine import Sine as Sine
from psofed.parts.functions.sum import Sum as Sum
from psofed.parts.functions.wiener import Wiener as Wiener
