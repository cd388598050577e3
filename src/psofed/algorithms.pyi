# For type checkers; written by `make docs`.
from psofed.parts.algorithms.models import OnlineFed as OnlineFed
from psofed.parts.algorithms.models import PsoFed as PsoFed
from psofed.parts.algorithms.updates import CSFed as CSFed
from psofed.parts.algorithms.updates import DeMoA as DeMoA
from psofed.parts.algorithms.updates import QSFed as QSFed
from psofed.parts.algorithms.updates import RoSDHB as RoSDHB
from psofed.parts.algorithms.updates import SignSGD as SignSGD
