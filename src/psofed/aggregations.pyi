# For type checkers; written by `make docs`.
from psofed.parts.aggregations.centred_clipping import CentredClipping as CentredClipping
from psofed.parts.aggregations.cge import CGE as CGE
from psofed.parts.aggregations.fltrust import FLTrust as FLTrust
from psofed.parts.aggregations.geometric_median import GeometricMedian as GeometricMedian
from psofed.parts.aggregations.krum import Krum as Krum
from psofed.parts.aggregations.mda import MDA as MDA
from psofed.parts.aggregations.meamed import MeaMed as MeaMed
from psofed.parts.aggregations.mean import Mean as Mean
from psofed.parts.aggregations.median import Median as Median
from psofed.parts.aggregations.multi_krum import MultiKrum as MultiKrum
from psofed.parts.aggregations.norm_clipping import NormClipping as NormClipping
from psofed.parts.aggregations.phocas import Phocas as Phocas
from psofed.parts.aggregations.remembered_clipping import RememberedClipping as RememberedClipping
from psofed.parts.aggregations.trimmed_mean import TrimmedMean as TrimmedMean
