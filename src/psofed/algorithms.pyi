# For type checkers; written by `make docs`.
from psofed.parts.algorithms.cs_fed import CSFed as CSFed
from psofed.parts.algorithms.demoa import DeMoA as DeMoA
from psofed.parts.algorithms.online_fed import OnlineFed as OnlineFed
from psofed.parts.algorithms.pso_fed import PsoFed as PsoFed
from psofed.parts.algorithms.qs_fed import QSFed as QSFed
from psofed.parts.algorithms.rosdhb import RoSDHB as RoSDHB
from psofed.parts.algorithms.signsgd import SignSGD as SignSGD
