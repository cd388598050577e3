"""Base classes of the families of parts, and what the engine expects of each.

They are defined by what they are about: :mod:`~psofed.parts.families.attack`, :mod:`~psofed.parts.families.exchange`,
:mod:`~psofed.parts.families.learning`, :mod:`~psofed.parts.families.server`, and :mod:`psofed.parts.network`.
"""

from psofed.parts.families.attack import Attack as Attack
from psofed.parts.families.exchange import Algorithm as Algorithm
from psofed.parts.families.exchange import Pattern as Pattern
from psofed.parts.families.learning import Drift as Drift
from psofed.parts.families.learning import Function as Function
from psofed.parts.families.learning import InputStream as InputStream
from psofed.parts.families.learning import Learner as Learner
from psofed.parts.families.learning import Model as Model
from psofed.parts.families.server import Aggregation as Aggregation
from psofed.parts.families.server import Defence as Defence
from psofed.parts.families.server import PreAggregation as PreAggregation
