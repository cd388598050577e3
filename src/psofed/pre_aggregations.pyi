# For type checkers; written by `make docs`.
from psofed.parts.pre_aggregations.arc import ARC as ARC
from psofed.parts.pre_aggregations.bucketing import Bucketing as Bucketing
from psofed.parts.pre_aggregations.nnm import NNM as NNM
