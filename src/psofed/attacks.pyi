# For type checkers; written by `make docs`.
from psofed.parts.attacks.colluding_gaussian import ColludingGaussian as ColludingGaussian
from psofed.parts.attacks.constant_bias import ConstantBias as ConstantBias
from psofed.parts.attacks.data_poisoning import DataPoisoning as DataPoisoning
from psofed.parts.attacks.drop_out import DropOut as DropOut
from psofed.parts.attacks.gaussian import Gaussian as Gaussian
from psofed.parts.attacks.inner_product import InnerProduct as InnerProduct
from psofed.parts.attacks.label_poisoning import LabelPoisoning as LabelPoisoning
from psofed.parts.attacks.little_is_enough import LittleIsEnough as LittleIsEnough
from psofed.parts.attacks.mimic import Mimic as Mimic
from psofed.parts.attacks.min_max import MinMax as MinMax
from psofed.parts.attacks.min_sum import MinSum as MinSum
from psofed.parts.attacks.non_finite import NonFinite as NonFinite
from psofed.parts.attacks.scaled_update import ScaledUpdate as ScaledUpdate
from psofed.parts.attacks.sign_flip import SignFlip as SignFlip
