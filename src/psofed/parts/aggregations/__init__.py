"""Built-in aggregations, one file each, found by name: ``psofed.aggregations.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
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
    from psofed.parts.aggregations.trimmed_mean import TrimmedMean as TrimmedMean
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("aggregation", name)


def __dir__() -> list[str]:
    return class_names("aggregation")
