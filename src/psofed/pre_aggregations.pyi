# For type checkers; written by `make docs`.
from psofed.parts.pre_aggregations.built_in import ARC as ARC
from psofed.parts.pre_aggregations.built_in import NNM as NNM
from psofed.parts.pre_aggregations.built_in import Bucketing as Bucketing
