"""Parts of a scenario: what they promise, where they are found, and the built-in ones, a folder for each family.

A part is a frozen value that every package takes: simulation, theory, sweeps, the federation, TOML, the command line.
Own ones are classes that derive from one of the bases here; see ``docs/write_a_part.md``.
"""

from psofed.common.options import option as option
from psofed.parts.base import Aggregation as Aggregation
from psofed.parts.base import Algorithm as Algorithm
from psofed.parts.base import Attack as Attack
from psofed.parts.base import Defence as Defence
from psofed.parts.base import Drift as Drift
from psofed.parts.base import Function as Function
from psofed.parts.base import InputStream as InputStream
from psofed.parts.base import Learner as Learner
from psofed.parts.base import Metric as Metric
from psofed.parts.base import Model as Model
from psofed.parts.base import Pattern as Pattern
from psofed.parts.base import PreAggregation as PreAggregation
from psofed.parts.network import Availability as Availability
from psofed.parts.network import Channel as Channel
from psofed.parts.network import Delay as Delay
from psofed.parts.registry import load_plugin as load_plugin
