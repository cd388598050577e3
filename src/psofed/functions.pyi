# For type checkers; written by `make docs`.
from psofed.parts.functions.built_in import RootSine as RootSine
from psofed.parts.functions.built_in import Sinc as Sinc
from psofed.parts.functions.built_in import Sine as Sine
from psofed.parts.functions.built_in import Sum as Sum
from psofed.parts.functions.built_in import Wiener as Wiener
