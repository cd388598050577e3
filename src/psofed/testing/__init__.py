"""For those who write parts of their own: :func:`check_part` says in words whether one keeps its promises."""

from psofed.testing.check import PartReport, check_part

__all__ = ["PartReport", "check_part"]
