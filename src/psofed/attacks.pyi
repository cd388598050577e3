# For type checkers; written by `make docs`.
from psofed.parts.attacks.by_value import ColludingGaussian as ColludingGaussian
from psofed.parts.attacks.by_value import ConstantBias as ConstantBias
from psofed.parts.attacks.by_value import DropOut as DropOut
from psofed.parts.attacks.by_value import Gaussian as Gaussian
from psofed.parts.attacks.by_value import NonFinite as NonFinite
from psofed.parts.attacks.by_value import ScaledUpdate as ScaledUpdate
from psofed.parts.attacks.by_value import SignFlip as SignFlip
from psofed.parts.attacks.omniscient import InnerProduct as InnerProduct
from psofed.parts.attacks.omniscient import LittleIsEnough as LittleIsEnough
from psofed.parts.attacks.omniscient import Mimic as Mimic
from psofed.parts.attacks.omniscient import MinMax as MinMax
from psofed.parts.attacks.omniscient import MinSum as MinSum
from psofed.parts.attacks.samples import DataPoisoning as DataPoisoning
from psofed.parts.attacks.samples import LabelPoisoning as LabelPoisoning
