# For type checkers; written by `make docs`.
from psofed.parts.aggregations.by_entry import MeaMed as MeaMed
from psofed.parts.aggregations.by_entry import Mean as Mean
from psofed.parts.aggregations.by_entry import Median as Median
from psofed.parts.aggregations.by_entry import Phocas as Phocas
from psofed.parts.aggregations.by_entry import TrimmedMean as TrimmedMean
from psofed.parts.aggregations.clipping import CentredClipping as CentredClipping
from psofed.parts.aggregations.clipping import NormClipping as NormClipping
from psofed.parts.aggregations.clipping import RememberedClipping as RememberedClipping
from psofed.parts.aggregations.selecting import CGE as CGE
from psofed.parts.aggregations.selecting import MDA as MDA
from psofed.parts.aggregations.selecting import Krum as Krum
from psofed.parts.aggregations.selecting import MultiKrum as MultiKrum
from psofed.parts.aggregations.weighing import FLTrust as FLTrust
from psofed.parts.aggregations.weighing import GeometricMedian as GeometricMedian
